"""What runs cost: their operations, and how long these take by finished runs on such a machine.

A run's time is that of a recorded run, as like it as there is, in proportion to the operations of both.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from poslab.config.schema import CAUSAL, ConfigError, ModelOptions, RunConfig
from poslab.data.needles import CANDIDATES, KINDS, ROOM
from poslab.measures import context_used, repeated_text
from poslab.measures.needles import DEPTHS
from poslab.objectives import build_objective
from poslab.record.facts import Manifest
from poslab.study.reuse import finished_runs

Settings = Mapping[str, Any]  # those that decide a run's result, as its record holds them


# What a training token takes outside of matrix products (norms, activations, the loss), in FLOPs of these
# that take as long: per layer and unit of width, and besides. With it, training steps of models of bytes at
# widths of 32 to 192 have one speed on a CPU, within 5 %, and windows of 1,024 and 8,192 tokens within 10 %.
PER_UNIT, BESIDES = 3_800, 300_000
LAST_BLOCK = 1 / 6  # of a block: the keys and values of the last one where only a window's end is scored


@dataclass(frozen=True)
class Model:
    """What decides the cost of a token."""

    parameters: int
    training: float  # FLOPs per token of windows of L, forward and backward (GPT.training_flops)
    width: int
    context_length: int
    windows: tuple[float, ...]  # of each layer that forms scores: how far back keys count
    max_length: int | None  # of the scheme, in tokens

    def forward(self, length: int) -> float:
        """Return the FLOPs per token of a window of `length`: those at L, and of the further keys."""
        further = sum(_keys(length, window) - _keys(self.context_length, window) for window in self.windows)
        return self.training / 3 + 4 * self.width * further


def _keys(length: int, window: float) -> float:
    """Return how many keys a token of so many sees on average: those before it in its `window`."""
    seen = min(length, window)
    return seen - seen**2 / (2 * length)


@dataclass(frozen=True)
class Cost:
    """The operations of a run."""

    parameters: int
    tokens: int  # of training
    training: float  # FLOPs, forward and backward (GPT.training_flops)
    evaluation: float  # FLOPs of validations and of the evaluation after training, recalibration too, about
    non_matmul: float  # what all of it takes outside of matrix products, in FLOPs that take as long

    @property
    def flops(self) -> float:
        return self.training + self.evaluation

    @property
    def per_token(self) -> float:
        return self.training / self.tokens


def cost_of(settings: Settings, vocabulary: int, trained: int | None = None) -> Cost:
    """Return the cost of a run by its settings, on a text of so many different tokens.

    `trained`: the tokens that it was trained on, if not all of them.
    """
    model, trainer = model_of(settings, vocabulary), settings["trainer"]
    step = trainer["batch_size"] * settings["context_length"]
    tokens = trained or trainer["max_steps"] * step
    again = settings["evaluate"].get("recalibration_steps", 0) * step  # tokens trained without positions
    passes = evaluated(settings, model)
    evaluation = model.training * again + sum(count * model.forward(length) for count, length in passes)
    non_matmul = non_matmul_per_token(settings) * (tokens + again + sum(count for count, _ in passes) / 3)
    return Cost(model.parameters, tokens, model.training * tokens, evaluation, non_matmul)


def model_of(settings: Settings, vocabulary: int) -> Model:
    """Return what decides the cost of a token; a model is built once for all of its runs, without weights."""
    parts = ("context_length", "pos", "attention", "objective", "model")
    known = {name: settings[name] for name in parts if name in settings}
    return _model(json.dumps(known, sort_keys=True), vocabulary)


@cache
def _model(settings: str, vocabulary: int) -> Model:
    import torch

    from poslab.model.gpt import GPT, build_parts

    known = json.loads(settings)
    known["model"] = ModelOptions.model_validate(known["model"])
    config = RunConfig.model_construct(**known)
    extra = build_objective(config.objective).extra_tokens
    geometry, scheme, mixers = build_parts(config)
    with torch.device("meta"):
        gpt = GPT(vocabulary + extra, geometry, scheme, mixers, config.model)
    return Model(
        gpt.parameter_count(),
        gpt.training_flops(1),
        geometry.width,
        geometry.context_length,
        tuple(
            scheme.layer(index).geometry.window or math.inf
            for index, mixer in enumerate(mixers)
            if mixer.form != "O(L)"
        ),
        scheme.max_length,
    )


def non_matmul_per_token(settings: Settings) -> float:
    """Return what a training token takes outside of matrix products, in FLOPs that take as long."""
    return PER_UNIT * settings["model"]["layers"] * settings["model"]["width"] + BESIDES


def evaluated(settings: Settings, model: Model) -> list[tuple[float, int]]:
    """Return about how many tokens pass through a run's model in validations and evaluation, by length.

    Tokens of windows of which only the end is scored count for the blocks that they pass through.
    """
    from poslab.evaluation import position_probe as probe  # these import PyTorch
    from poslab.evaluation.extrapolation import lengths_up_to

    length, options = settings["context_length"], settings["evaluate"]
    passes = [(options["validations"] * options["validation_windows"] * length, length)]
    if settings["data"].get("source") == "none":  # the samples of a task are short beside that
        return passes
    longest = options["longest"] * length
    reached = min(longest, model.max_length or longest)
    lengths = [at for _, at in lengths_up_to(reached, length, None)]
    causal = build_objective(settings.get("objective", CAUSAL)).causal
    ends = 1 - (1 - LAST_BLOCK) / settings["model"]["layers"]
    asked = settings.get("probe") or {}
    retrieved = len(asked.get("tasks", ())) * (asked.get("depths") or 0) * (asked.get("samples") or 0)
    found = options.get("needles", 0) * len(KINDS) * len(DEPTHS) * CANDIDATES
    for at in lengths:
        # Windows side by side, where the first half of each is a shorter one's unless tokens see later ones;
        # then sliding ones, of which every fourth of the longest is scored as a whole.
        tiled = options["segments"] * longest / (2 if causal and at < lengths[-1] else 1)
        whole = 0 if at < lengths[-1] else 1 / 4
        slid = options["sliding_windows"] * at * (whole + (1 - whole) * ends) if causal else 0
        questions = retrieved + (found if at >= ROOM else 0)
        passes.append((len(options["rescale"]) * (tiled + slid) + questions * at * ends, at))
    passes.append((probe.WINDOWS * length, length))
    if causal:
        shorter = context_used.WINDOWS * len(context_used.contexts(length)) * ends
        passes.append((shorter * length, length))
        copied = min(repeated_text.SEGMENTS, options["segments"])
        for at, distances in repeated_text.windows(length, int(reached)):
            passes.append((copied * (1 + len(distances)) * at, at))
    return passes


@dataclass(frozen=True)
class Timed:
    """A run with its recorded time."""

    settings: Settings
    per_token: float  # training FLOPs
    rate: float  # FLOPs per second of each core or GPU, with what else a token takes
    device: str


def timed_runs(runs: Path, on: Callable[[Manifest], bool]) -> list[Timed]:
    """Return the finished runs in the folder of all studies that lay on a machine which `on` accepts."""
    found = [timed(manifest) for _, manifest in finished_runs(runs) if on(manifest)]
    return [run for run in found if run is not None]


def timed(manifest: Manifest) -> Timed | None:
    """Return the rate of a finished run; None where its record lacks what that takes."""
    seconds = sum(
        part or 0.0 for part in (manifest.seconds, manifest.seconds_validation, manifest.seconds_evaluation)
    )
    if not manifest.config or not seconds:
        return None
    try:
        # The seconds on record are without those of recalibration.
        settings = {**manifest.config, "evaluate": {**manifest.config["evaluate"], "recalibration_steps": 0}}
        cost = cost_of(settings, manifest.corpus.vocabulary or 0, manifest.tokens)
    except (ConfigError, KeyError, TypeError, ValueError):  # of an earlier version
        return None
    trainer = manifest.config["trainer"]
    devices, device = trainer["devices"] * trainer["nodes"], str(manifest.device)
    if not on_gpu(manifest):
        devices, device = manifest.threads or 1, processor_of(manifest) or device
    return Timed(manifest.config, cost.per_token, (cost.flops + cost.non_matmul) / seconds / devices, device)


def processor_of(manifest: Manifest) -> str | None:
    """Return the model of the processor that a run had."""
    return None if manifest.hardware is None else manifest.hardware.processor


def on_gpu(manifest: Manifest) -> bool:
    """Return whether a run was on a GPU, by its record."""
    return not str(manifest.device).startswith("cpu")


def rate_for(settings: Settings, cost: Cost, runs: Iterable[Timed]) -> float | None:
    """Return the FLOPs per second that each core or GPU does in a run; None where no run was timed.

    It is by the median of the runs most like it: by objective, scheme, attention and size, in this order.
    """
    nearest: dict[tuple[float, ...], list[float]] = {}
    for run in runs:
        unlike = [run.settings.get(part) != settings.get(part) for part in ("objective", "pos", "attention")]
        size = round(abs(math.log2(cost.per_token / run.per_token)), 1)
        lengths = run.settings.get("context_length") != settings.get("context_length")
        nearest.setdefault((*unlike, size, lengths), []).append(run.rate)
    if not nearest:
        return None
    return statistics.median(nearest[min(nearest)]) * cost.flops / (cost.flops + cost.non_matmul)
