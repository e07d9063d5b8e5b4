"""The settings that decide a run's result, checked before any data is read.

Hydra composes the YAML files of conf/; this module and request.py are the one place that says which keys
exist, of which type and in which range. Positional schemes, attentions and data sources bring the options of
their own (`Options` beside each of them), since adding one must not touch this file.

This module is part of every run's hash, so what does not decide a result (where a run is stored, tracked or
launched) is in request.py: a new logger option must not make finished runs stale.
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
    """An attention cannot work under a scheme. The message names the pair and what to choose instead."""


class Options(BaseModel):
    """A section of the configuration: unknown keys and wrong types are errors, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _once_each(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError(f"{values} names one twice")
    return values


ONCE_EACH = AfterValidator(_once_each)


class BlockOptions(Options):
    """The parts of a block besides its attention's kind; the defaults are GPT-2's."""

    norm: Literal["layer", "rms"] = Field(
        default="layer", description="LayerNorm, or RMSNorm (Zhang and Sennrich 2019)"
    )
    mlp: Literal["gelu", "swiglu"] = Field(
        default="gelu", description="4 D wide, or SwiGLU (Shazeer 2020) with as many parameters, 8/3 D wide"
    )
    query_groups: int | None = Field(
        default=None, ge=1, description="heads of keys and values, each for as many queries; null: heads"
    )
    qk_norm: bool = Field(
        default=False, description="RMSNorm of each head's queries and keys, not rotated yet"
    )
    output_gate: bool = Field(
        default=False, description="attention's output times sigmoid(W x) (Qiu et al. 2025)"
    )
    sinks: bool = Field(
        default=False,
        description="a learned score beside those of the keys; its weight is left out (gpt-oss 2025)",
    )
    canon: Annotated[list[Literal["a", "b", "c", "d"]], ONCE_EACH, AfterValidator(sorted)] = Field(
        default=[],
        description="convolutions of 4 tokens (Allen-Zhu 2025): a before attention, b on its queries, keys "
        "and values, c before the perceptron, d on its hidden numbers before the activation",
    )
    bias: bool = Field(default=True, description="in the layers and in LayerNorm")
    tied: bool = Field(default=True, description="the output matrix is the token embedding's")


class ModelOptions(BlockOptions):
    layers: int = Field(ge=1, description="blocks of the GPT")
    width: int = Field(ge=1, description="of the residual stream; a multiple of heads")
    heads: int = Field(ge=1, description="of each attention")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not a multiple of heads={self.heads}")
        if self.query_groups is not None and self.heads % self.query_groups:
            raise ValueError(f"heads={self.heads} is not a multiple of query_groups={self.query_groups}")
        return self


ADAMW: Literal["adamw"] = "adamw"  # the optimizer of records that are older than the setting


# How devices share a run. This decides no more than the last digits of its numbers: a run may be resumed on
# others. Each with its value on one device.
SHARING = {"devices": 1, "nodes": 1, "strategy": "ddp"}


class TrainerOptions(Options):
    max_steps: int = Field(ge=1, description="optimizer steps, the budget")
    batch_size: int = Field(ge=1, description="windows per optimizer step, for any `accumulate`")
    accumulate: int = Field(ge=1, description="parts that a batch is cut into to save memory")
    optimizer: Literal["adamw", "muon"] = Field(
        default=ADAMW, description="muon: of the blocks' matrices (Jordan et al. 2024), AdamW of the rest"
    )
    learning_rate: float = Field(gt=0, description="at the peak of the schedule")
    scheme_rate: float = Field(
        gt=0, description="times the `rate` of a scheme that has parameters of its own"
    )
    schedule: Literal["cosine", "constant", "wsd"] = Field(
        description="after the warm-up; wsd: constant, then linear to zero over the last fifth"
    )
    warmup_steps: int = Field(
        ge=0, description="steps before the rate reaches its peak; 10%: a tenth of max_steps, rounded up"
    )
    weight_decay: float = Field(ge=0, description="only on matrices and the weights of convolutions")
    beta2: float = Field(gt=0, lt=1, description="of AdamW")
    clip_norm: float = Field(gt=0, description="gradients with a larger norm are scaled down to it")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        description="auto: bfloat16 on a GPU that has it, else float32"
    )
    accelerator: Literal["auto", "cpu", "cuda"] = Field(
        description="auto: a GPU where there is one, and on a cluster always"
    )
    devices: int = Field(ge=1, description="GPUs, or processes on CPU, that share each batch; of a node")
    nodes: int = Field(ge=1, description="machines with so many devices each")
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="of several devices; fsdp: each has a part of the parameters and of their moments",
    )
    compile: Literal["auto"] | bool = Field(
        description="the blocks, for training; auto: on a GPU, where training is long enough to repay it"
    )
    recompute: bool = Field(
        default=False, description="each block once more in the backward pass, to store only its input"
    )
    checkpoint_seconds: float = Field(
        ge=0, description="between two checkpoints: the most training that a crash can cost"
    )

    @field_validator("warmup_steps", mode="before")
    @classmethod
    def _steps_or_a_share(cls, value: Any) -> Any:
        if isinstance(value, str):  # a share that could be read is a number by now
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
                raise ValueError("optimizer=muon needs whole matrices: choose strategy=ddp or adamw")
            if self.compile is True:
                raise ValueError("compile=true compiles whole blocks: choose strategy=ddp or compile=false")
        if self.warmup_steps > self.max_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} is more than max_steps={self.max_steps}")
        return self


GPT2_BLOCK = BlockOptions()  # that of records that are older than these settings

SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
VALIDATIONS = 100  # what convergence figures need
Multiple = Literal[1, 2, 4, 8, 16, 32, 64]  # of L: the lengths that a model can be evaluated up to
MULTIPLES: tuple[Multiple, ...] = get_args(Multiple)
Rescale = Literal["none", "pi", "ntk", "dynamic", "yarn", "drop"]
RESCALINGS: tuple[Rescale, ...] = get_args(Rescale)
FACTOR_METHODS = {"pi", "ntk", "yarn"}  # the rescalings that take a factor


class EvaluateOptions(Options):
    """How a run is validated while it trains, and extrapolated afterwards. Lengths are multiples of L."""

    validations: int = Field(
        ge=1, description="per run, evenly spaced; auto: 100, or one per step where there are fewer"
    )
    validation_windows: int = Field(ge=1, description="windows of L tokens that each validation scores")
    longest: Literal["auto", Multiple] = Field(description="auto: 8 on CPU, 16 on a GPU")
    segments: int = Field(ge=1, description="stretches of the longest length that are scored")
    documents: Literal["single", "joined"] = Field(
        default="single", description="that a segment lies in: one, or several joined until they have room"
    )
    sliding_windows: int = Field(
        ge=1, description="per length; each scores L/8 targets, spread over all segments"
    )
    needles: int = Field(
        default=0,
        ge=0,
        description="questions a length and depth for facts in the text, in bytes, without training for them",
    )
    rescale: list[Rescale] = Field(
        description="evaluated again under these rotations, without training; none: as trained, always"
    )
    rescale_factor: Literal["auto"] | float = Field(
        description="s of pi, ntk and yarn; auto: as far as the longest length"
    )
    recalibration_steps: int = Field(ge=0, description="trained without positions after drop, at length L")

    @model_validator(mode="after")
    def _rescaling_is_used(self) -> Self:
        if len(set(self.rescale)) < len(self.rescale) or self.rescale[:1] != ["none"]:
            methods = ",".join(self.rescale)
            raise ValueError(
                f"rescale=[{methods}] must begin with none, as [none,yarn], and name nothing twice"
            )
        if self.rescale_factor != "auto":
            if self.rescale_factor <= 1:
                raise ValueError(f"rescale_factor={self.rescale_factor:g} must be above 1")
            if not FACTOR_METHODS & set(self.rescale):
                raise ValueError("rescale_factor is for pi, ntk or yarn in rescale")
        if self.recalibration_steps and "drop" not in self.rescale:
            raise ValueError("recalibration_steps is for drop in rescale")
        return self


class ProbeOptions(Options):
    """Questions among the training windows, and how what was learned of them is measured."""

    tasks: Annotated[list[Literal["passkey", "copy"]], ONCE_EACH] = Field(
        description="the questions; none by default"
    )
    share: float | None = Field(default=None, gt=0, lt=1, description="of the training windows hold one")
    samples: int | None = Field(default=None, ge=1, description="per task, length and depth")
    depths: int | None = Field(default=None, ge=2, description="evenly spaced, both ends among them")

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        for name in ("share", "samples", "depths"):
            if bool(self.tasks) != (getattr(self, name) is not None):
                raise ValueError(f"{name} is needed with tasks and unknown without")
        return self


HELD_OUT = 0.1  # of a text, also in records that are older than the setting
CAUSAL = {"kind": "causal"}  # the objective of records that are older than the setting
# What records that are older than a setting have for it: they leave it out, and so do later ones.
AS_IN_OLDER_RECORDS: Mapping[str, Mapping[str, Any]] = {
    "trainer": {"optimizer": ADAMW, "recompute": False, "strategy": "ddp"},
    "model": dict(GPT2_BLOCK),
    "evaluate": {"needles": 0, "documents": "single"},
    "data": {"windows": "joined", "held_out": HELD_OUT},
}


class RunConfig(Options):
    """The settings that decide a run's result. Parts check `pos`, `attention`, `data` and `objective`."""

    seed: int = Field(ge=0, lt=2**63, description="decides the order of the data and every initial weight")
    context_length: int = Field(ge=1, description="L, the tokens of a training window; model=NAME sets it")
    pos: dict[str, Any] = Field(description="the section of the positional scheme, which pos=NAME chooses")
    attention: dict[str, Any] = Field(
        description="the section of the attention, which attention=NAME chooses"
    )
    data: dict[str, Any] = Field(description="the section of the text, which data=NAME chooses")
    objective: dict[str, Any] = Field(
        default=CAUSAL, description="the section of what is predicted, which objective=NAME chooses"
    )
    model: ModelOptions
    trainer: TrainerOptions
    evaluate: EvaluateOptions
    probe: ProbeOptions
    callbacks: dict[str, dict[str, Any]] = Field(
        default={},
        description="of Lightning, which callbacks=[NAME,...] chooses: a section each, its class as _target_",
    )
    part: Literal["comparison", "tuning"] = Field(
        description="tuning: trained and validated only on parts of the training text"
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
                f"own, and pos.scheme={self.pos.get('scheme')} has none: leave it at 1"
            )
        return self

    @field_validator("callbacks")
    @classmethod
    def _callbacks_are_classes(cls, callbacks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        check_classes(callbacks)
        return callbacks

    @property
    def scheme_learns(self) -> bool:
        """Whether the positional scheme has parameters of its own: its section, or one inside it, a rate."""
        return _holds_rate(self.pos)

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that decide a run's result, not where it is stored, tracked or launched.

        Of a local text only the name is left, no path of the machine: records and reports are published.
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
    """Raise ValueError where a section does not name a class, by `_target_`."""
    for name, section in sections.items():
        if not isinstance(section.get("_target_"), str) or "." not in section["_target_"]:
            raise ValueError(f"{name} names no class: {name}._target_=PACKAGE.CLASS is missing")


def following_max_steps(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a number for each one that follows `trainer.max_steps` by default.

    `trainer.warmup_steps` can be a share such as 10%, and `evaluate.validations` auto. Any budget has a
    number for both, so that `max_steps` can be changed without changing them.
    """
    trainer, evaluate = settings.get("trainer"), settings.get("evaluate")
    read = dict(settings)
    steps = trainer.get("max_steps") if isinstance(trainer, Mapping) else None
    if type(steps) is not int or steps < 1:
        steps = 1  # the check of max_steps refuses it
    if isinstance(trainer, Mapping) and (share := SHARE.fullmatch(str(trainer.get("warmup_steps")))):
        read["trainer"] = {**trainer, "warmup_steps": math.ceil(Fraction(share[1]) / 100 * steps)}
    if isinstance(evaluate, Mapping) and evaluate.get("validations") == "auto":
        read["evaluate"] = {**evaluate, "validations": min(VALIDATIONS, steps)}
    return read


def is_tokenizer_file(vocabulary: Any) -> bool:
    """Return whether `data.vocabulary` is a tokenizer's file, not bytes or a number of entries."""
    return isinstance(vocabulary, str) and vocabulary != "bytes"


def _holds_rate(section: Any) -> bool:
    return isinstance(section, dict) and ("rate" in section or any(map(_holds_rate, section.values())))


def longest_length(config: RunConfig) -> int:
    """Return the longest evaluation length in tokens, of a resolved configuration."""
    return int(config.evaluate.longest) * config.context_length


def rescaled_by(config: RunConfig) -> list[str]:
    """Return the other rotations under which a configuration evaluates a trained model."""
    return [method for method in config.evaluate.rescale if method != "none"]
