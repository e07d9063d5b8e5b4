"""The settings that affect a run's result, checked before any data is read.

Hydra composes the YAML files of conf/. Only this module and request.py define which keys exist, with which
types and ranges. Positional schemes, attentions and data sources define their own options (an `Options` class
beside each of them), so that adding one does not touch this file.

This module is part of every run's hash. Settings that do not affect a result (where a run is stored, tracked
or launched) are in request.py, so that a new logger option does not make finished runs stale.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from poslab.config.errors import UserError


class ConfigError(UserError, ValueError):
    """A configuration that cannot be run; the message is one line that says what to change."""


class PairError(ConfigError):
    """An attention that cannot work with a scheme. The message names the pair and what to choose instead."""


class Options(BaseModel):
    """A section of the configuration: unknown keys and wrong types are errors, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _once_each(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError(f"{values} has a value twice")
    return values


ONCE_EACH = AfterValidator(_once_each)


class BlockOptions(Options):
    """The parts of a block, except the kind of its attention; the defaults are those of GPT-2."""

    norm: Literal["layer", "rms"] = Field(
        default="layer", description="normalisation: LayerNorm, or RMSNorm (Zhang and Sennrich 2019)"
    )
    mlp: Literal["gelu", "swiglu"] = Field(
        default="gelu", description="4 D wide; SwiGLU (Shazeer 2020): 8/3 D wide, for as many parameters"
    )
    query_groups: int | None = Field(
        default=None, ge=1, description="key-value heads, shared by the query heads; null: as many as heads"
    )
    qk_norm: bool = Field(default=False, description="RMSNorm of the heads' queries and keys before rotation")
    output_gate: bool = Field(
        default=False, description="scale attention's output by sigmoid(W x), x its input (Qiu et al. 2025)"
    )
    sinks: bool = Field(
        default=False,
        description="a learned score per head in the softmax over the keys, without a value (gpt-oss 2025)",
    )
    canon: Annotated[list[Literal["a", "b", "c", "d"]], ONCE_EACH, AfterValidator(sorted)] = Field(
        default=[],
        description="convolutions over 4 tokens (Allen-Zhu 2025): a before attention, b on its queries, keys "
        "and values, c before the perceptron, d on its hidden units before the activation",
    )
    bias: bool = Field(default=True, description="biases in the linear layers and in LayerNorm")
    tied: bool = Field(default=True, description="use the token embedding as the output matrix")


class ModelOptions(BlockOptions):
    layers: int = Field(ge=1, description="number of transformer blocks")
    width: int = Field(ge=1, description="width D of the residual stream, a multiple of heads")
    heads: int = Field(ge=1, description="attention heads per block")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not a multiple of heads={self.heads}")
        if self.query_groups is not None and self.heads % self.query_groups:
            raise ValueError(f"heads={self.heads} is not a multiple of query_groups={self.query_groups}")
        return self


ADAMW: Literal["adamw"] = "adamw"  # the optimizer of records older than this setting


# How devices share a run. This affects only the last digits of its numbers, so a run may resume on other
# devices. Each setting has its value for one device.
SHARING = {"devices": 1, "nodes": 1, "strategy": "ddp"}


class TrainerOptions(Options):
    max_steps: int = Field(ge=1, description="optimizer steps of a run, its training budget")
    batch_size: int = Field(ge=1, description="windows per optimizer step, over all parts and devices")
    accumulate: int = Field(ge=1, description="parts that each batch is split into, to save memory")
    optimizer: Literal["adamw", "muon"] = Field(
        default=ADAMW, description="muon: for the blocks' matrices (Jordan et al. 2024), AdamW for the rest"
    )
    learning_rate: float = Field(gt=0, description="peak learning rate of the schedule")
    scheme_rate: float = Field(gt=0, description="multiplies pos.rate, the rate of a scheme's own parameters")
    schedule: Literal["cosine", "constant", "wsd"] = Field(
        description="learning rate after the warm-up; wsd: constant, then linear to zero over the last fifth"
    )
    warmup_steps: int = Field(
        ge=0, description="steps until the learning rate peaks; 10%: a tenth of max_steps, rounded up"
    )
    weight_decay: float = Field(ge=0, description="for matrices and convolutions, except the scheme's own")
    beta2: float = Field(gt=0, lt=1, description="beta2 of AdamW")
    clip_norm: float = Field(gt=0, description="largest gradient norm; larger gradients are scaled down")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        description="auto: bfloat16 on a GPU that supports it, else float32"
    )
    accelerator: Literal["auto", "cpu", "cuda"] = Field(
        description="auto: a GPU if there is one, and always on a cluster"
    )
    devices: int = Field(ge=1, description="GPUs (or CPU processes) per machine that share each batch")
    nodes: int = Field(ge=1, description="machines, with `devices` devices each, that share each batch")
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="for several devices; fsdp: each stores a part of the parameters and optimizer state",
    )
    compile: Literal["auto"] | bool = Field(
        description="compile blocks; auto: on a GPU from 2,000 steps on, except with fsdp or windows=packed"
    )
    recompute: bool = Field(
        default=False, description="compute blocks again in the backward pass, to store only their inputs"
    )
    checkpoint_seconds: float = Field(
        ge=0, description="seconds between checkpoints: the most training that a crash can cost"
    )

    @field_validator("warmup_steps", mode="before")
    @classmethod
    def _steps_or_a_share(cls, value: Any) -> Any:
        if isinstance(value, str):  # a valid share is a number by now
            raise ValueError(f"{value[:60]!r} is neither a number of steps nor a share such as 10%")
        return value

    @model_validator(mode="after")
    def _steps_and_batches_divide(self) -> Self:
        parts = self.accumulate * self.devices * self.nodes
        if self.batch_size % parts:
            product = " x ".join(
                f"{name}={value}"
                for name, value in (
                    ("accumulate", self.accumulate),
                    ("devices", self.devices),
                    ("nodes", self.nodes),
                )
                if value > 1
            )
            raise ValueError(f"batch_size={self.batch_size} is not a multiple of {product}")
        if self.strategy == "fsdp":
            if self.devices * self.nodes == 1:
                raise ValueError("strategy=fsdp splits a model among devices: choose devices=2 or more")
            if self.optimizer == "muon":
                raise ValueError("optimizer=muon needs whole matrices: choose adamw, or strategy=ddp")
            if self.compile is True:
                raise ValueError("compile=true compiles whole blocks: choose strategy=ddp or compile=false")
        if self.warmup_steps > self.max_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} is more than max_steps={self.max_steps}")
        return self


GPT2_BLOCK = BlockOptions()  # the block of records older than these settings

SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
VALIDATIONS = 100  # enough for figures of convergence
Multiple = Literal[1, 2, 4, 8, 16, 32, 64]  # of L: the lengths that a model can be evaluated up to
MULTIPLES: tuple[Multiple, ...] = get_args(Multiple)
Rescale = Literal["none", "pi", "ntk", "dynamic", "yarn", "drop"]
RESCALINGS: tuple[Rescale, ...] = get_args(Rescale)
FACTOR_METHODS = {"pi", "ntk", "yarn"}  # the rescalings that take a factor


class EvaluateOptions(Options):
    """How a run is validated during training and extrapolated afterwards. Lengths are multiples of L."""

    validations: int = Field(
        ge=1, description="validations per run, evenly spaced; auto: 100, or one per step in shorter runs"
    )
    validation_windows: int = Field(ge=1, description="windows of L tokens that each validation scores")
    longest: Literal["auto", Multiple] = Field(
        description="longest evaluation length, as a multiple of L; auto: 8 on a CPU, 16 on a GPU"
    )
    segments: int = Field(ge=1, description="stretches of text to score, each of the longest length")
    documents: Literal["single", "joined"] = Field(
        default="single", description="take each segment from one document, or from joined short ones"
    )
    sliding_windows: int = Field(
        ge=1, description="sliding windows per length, over all segments; each scores L/8 targets"
    )
    needles: int = Field(
        default=0,
        ge=0,
        description="questions on facts per length and depth, without training; needs data.vocabulary=bytes",
    )
    rescale: list[Rescale] = Field(
        description="rotations to evaluate a trained RoPE with; none, always the first: as trained"
    )
    rescale_factor: Literal["auto"] | float = Field(
        description="factor s of pi, ntk and yarn; auto: the longest length over L"
    )
    recalibration_steps: int = Field(ge=0, description="training steps at L without positions, after drop")

    @model_validator(mode="after")
    def _rescaling_is_used(self) -> Self:
        if len(set(self.rescale)) < len(self.rescale) or self.rescale[:1] != ["none"]:
            methods = ",".join(self.rescale)
            raise ValueError(f"rescale=[{methods}] must begin with none, as [none,yarn], without repetition")
        if self.rescale_factor != "auto":
            if self.rescale_factor <= 1:
                raise ValueError(f"rescale_factor={self.rescale_factor:g} must be above 1")
            if not FACTOR_METHODS & set(self.rescale):
                raise ValueError("rescale_factor needs pi, ntk or yarn in rescale")
        if self.recalibration_steps and "drop" not in self.rescale:
            raise ValueError("recalibration_steps needs drop in rescale")
        return self


class ProbeOptions(Options):
    """Questions in some training windows, and how the trained model is tested on them."""

    tasks: Annotated[list[Literal["passkey", "copy"]], ONCE_EACH] = Field(
        description="kinds of questions; [] for none, the default"
    )
    share: float | None = Field(
        default=None, gt=0, lt=1, description="share of the training windows that contain a question"
    )
    samples: int | None = Field(default=None, ge=1, description="questions tested per task, length and depth")
    depths: int | None = Field(default=None, ge=2, description="evenly spaced depths, both ends included")

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        for name in ("share", "samples", "depths"):
            if bool(self.tasks) != (getattr(self, name) is not None):
                raise ValueError(f"{name} is needed with tasks, and not allowed without")
        return self


HELD_OUT = 0.1  # share of a text, also in records older than the setting
CAUSAL = {"kind": "causal"}  # the objective of records older than the setting
# The values in records older than a setting: those records omit it, and later ones omit these values.
AS_IN_OLDER_RECORDS: Mapping[str, Mapping[str, Any]] = {
    "trainer": {"optimizer": ADAMW, "recompute": False, "strategy": "ddp"},
    "model": dict(GPT2_BLOCK),
    "evaluate": {"needles": 0, "documents": "single"},
    "data": {"windows": "joined", "held_out": HELD_OUT},
}


class RunConfig(Options):
    """The settings that affect a run's result. Parts check `pos`, `attention`, `data` and `objective`."""

    seed: int = Field(ge=0, lt=2**63, description="random seed of the data order and all initial weights")
    context_length: int = Field(ge=1, description="training length L in tokens, set by model=NAME")
    pos: dict[str, Any] = Field(description="section of the positional scheme, chosen with pos=NAME")
    attention: dict[str, Any] = Field(description="section of the attention, chosen with attention=NAME")
    data: dict[str, Any] = Field(description="section of the text, chosen with data=NAME")
    objective: dict[str, Any] = Field(
        default=CAUSAL, description="section of what is predicted, chosen with objective=NAME"
    )
    model: ModelOptions
    trainer: TrainerOptions
    evaluate: EvaluateOptions
    probe: ProbeOptions
    callbacks: dict[str, dict[str, Any]] = Field(
        default={},
        description="Lightning callbacks, chosen with callbacks=[NAME,...]: a section each, with its class "
        "as _target_",
    )
    part: Literal["comparison", "tuning"] = Field(
        description="tuning: train and validate only on parts of the training text"
    )

    @model_validator(mode="before")
    @classmethod
    def _numbers_that_follow(cls, settings: Any) -> Any:
        return following_max_steps(settings) if isinstance(settings, Mapping) else settings

    @model_validator(mode="after")
    def _scheme_rate_has_parameters(self) -> Self:
        if self.trainer.scheme_rate != 1 and not self.scheme_learns:
            raise ValueError(
                f"trainer.scheme_rate={self.trainer.scheme_rate:g} is for schemes with parameters of their "
                f"own, but pos.scheme={self.pos.get('scheme')} has none: leave it at 1"
            )
        return self

    @field_validator("callbacks")
    @classmethod
    def _callbacks_are_classes(cls, callbacks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        check_classes(callbacks)
        return callbacks

    @property
    def scheme_learns(self) -> bool:
        """Whether the positional scheme has its own parameters: its section, or one inside, has a rate."""
        return _holds_rate(self.pos)

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that affect a run's result, not where it is stored, tracked or launched.

        Cut the path of a local text or tokenizer to its file name: records and reports are published.
        """
        plain = self.model_dump(mode="json", include=set(RunConfig.model_fields))
        del plain["trainer"]["checkpoint_seconds"]
        for name, usual in (("callbacks", {}), ("objective", CAUSAL)):
            if plain[name] == usual:
                del plain[name]
        for section, defaults in AS_IN_OLDER_RECORDS.items():
            for name, usual in defaults.items():
                if plain[section].get(name) == usual:
                    plain[section].pop(name, None)
        if plain["data"].get("source") == "text" and isinstance(plain["data"].get("path"), str):
            plain["data"]["path"] = Path(plain["data"]["path"]).name
        if is_tokenizer_file(plain["data"].get("vocabulary")):
            plain["data"]["vocabulary"] = Path(plain["data"]["vocabulary"]).name
        return plain


def check_classes(sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ValueError if a section does not name a class with `_target_`."""
    for name, section in sections.items():
        if not isinstance(section.get("_target_"), str) or "." not in section["_target_"]:
            raise ValueError(f"{name} names no class: set its _target_ to PACKAGE.CLASS")


def following_max_steps(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with numbers in place of values relative to `trainer.max_steps`.

    `trainer.warmup_steps` can be a share such as 10%, and `evaluate.validations` can be auto. Both become
    valid numbers for any budget, so that `max_steps` can be changed without changing them.
    """
    trainer, evaluate = settings.get("trainer"), settings.get("evaluate")
    read = dict(settings)
    steps = trainer.get("max_steps") if isinstance(trainer, Mapping) else None
    if type(steps) is not int or steps < 1:
        steps = 1  # an invalid max_steps is refused later
    if isinstance(trainer, Mapping) and (share := SHARE.fullmatch(str(trainer.get("warmup_steps")))):
        read["trainer"] = {**trainer, "warmup_steps": math.ceil(Fraction(share[1]) / 100 * steps)}
    if isinstance(evaluate, Mapping) and evaluate.get("validations") == "auto":
        read["evaluate"] = {**evaluate, "validations": min(VALIDATIONS, steps)}
    return read


def is_tokenizer_file(vocabulary: Any) -> bool:
    """Return whether `data.vocabulary` names a tokenizer file, not bytes or a number of entries."""
    return isinstance(vocabulary, str) and vocabulary != "bytes"


def _holds_rate(section: Any) -> bool:
    return isinstance(section, dict) and ("rate" in section or any(map(_holds_rate, section.values())))


def longest_length(config: RunConfig) -> int:
    """Return the longest evaluation length of a resolved configuration, in tokens."""
    return int(config.evaluate.longest) * config.context_length


def rescaled_by(config: RunConfig) -> list[str]:
    """Return the rotations, except the trained one, with which a trained model is evaluated."""
    return [method for method in config.evaluate.rescale if method != "none"]
