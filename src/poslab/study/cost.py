"""The cost of runs: their operations, and the time that these take, estimated from finished runs.

The time of a run is that of the recorded runs most like it, in proportion to the operations.
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

Settings = Mapping[str, Any]  # the settings that decide a run's result, as in its record


# The work per training token outside matrix products (norms, activations, the loss), as the FLOPs of matrix
# products that take as long: per layer and unit of width, and a constant. With it, byte models of widths 32
# to 192 reach the same FLOPs per second on a CPU within 5 %, windows of 1,024 and 8,192 tokens within 10 %.
PER_UNIT, BESIDES = 3_800, 300_000
SHORTEST = 5.0  # seconds: in shorter runs most of the time does not grow with the operations
LAST_BLOCK = 1 / 6  # the part of the last block that runs, keys and values, if only a window's end is scored


@dataclass(frozen=True)
class Model:
    """The properties of a model that decide the cost of a token."""

    parameters: int
    training: float  # FLOPs per token in windows of L, forward and backward (GPT.training_flops)
    width: int
    context_length: int
    windows: tuple[float, ...]  # of each layer with attention scores, in tokens; infinity for no window
    max_length: int | None  # of the scheme, in tokens

    def forward(self, length: int) -> float:
        """Return the forward FLOPs per token in windows of `length`: those at L, plus the additional keys."""
        further = sum(_keys(length, window) - _keys(self.context_length, window) for window in self.windows)
        return self.training / 3 + 4 * self.width * further


def _keys(length: int, window: float) -> float:
    """Return how many earlier keys a token sees on average in `length` tokens, with attention `window`."""
    seen = min(length, window)
    return seen - seen**2 / (2 * length)


@dataclass(frozen=True)
class Cost:
    """The operations of a run."""

    parameters: int
    tokens: int  # of training
    training: float  # FLOPs, forward and backward (GPT.training_flops)
    evaluation: float  # FLOPs of validations, evaluation and recalibration, approximately
    non_matmul: float  # all work outside matrix products, as FLOPs of matrix products that take as long

    @property
    def flops(self) -> float:
        return self.training + self.evaluation

    @property
    def per_token(self) -> float:
        return self.training / self.tokens


def cost_of(settings: Settings, vocabulary: int, trained: int | None = None) -> Cost:
    """Return the cost of a run with these settings and `vocabulary` different tokens in its text.

    `trained` is the number of tokens that it was trained on, if it differs from the configured one.
    """
    model, trainer = model_of(settings, vocabulary), settings["trainer"]
    step = trainer["batch_size"] * settings["context_length"]
    tokens = trained or trainer["max_steps"] * step
    extra = settings["evaluate"].get("recalibration_steps", 0) * step  # tokens of recalibration
    passes = evaluated(settings, model)
    evaluation = model.training * extra + sum(count * model.forward(length) for count, length in passes)
    non_matmul = non_matmul_per_token(settings) * (tokens + extra + sum(count for count, _ in passes) / 3)
    return Cost(model.parameters, tokens, model.training * tokens, evaluation, non_matmul)


def model_of(settings: Settings, vocabulary: int) -> Model:
    """Return the properties that decide the cost of a token; equal models are built once, without weights."""
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
    """Return the work per training token outside matrix products, as FLOPs like PER_UNIT."""
    return PER_UNIT * settings["model"]["layers"] * settings["model"]["width"] + BESIDES


def evaluated(settings: Settings, model: Model) -> list[tuple[float, int]]:
    """Return pairs of an approximate number of tokens and the length of their windows, for all evaluation.

    Tokens of windows that are scored only at their end count in proportion to the blocks that they pass.
    """
    from poslab.evaluation import position_probe as probe  # these import PyTorch
    from poslab.evaluation.extrapolation import lengths_up_to

    length, options = settings["context_length"], settings["evaluate"]
    passes = [(options["validations"] * options["validation_windows"] * length, length)]
    if settings["data"].get("source") == "none":  # the examples of a task have few tokens in comparison
        return passes
    longest = options["longest"] * length
    reached = min(longest, model.max_length or longest)
    lengths = [tokens for _, tokens in lengths_up_to(reached, length, None)]
    causal = build_objective(settings.get("objective", CAUSAL)).causal
    ends = 1 - (1 - LAST_BLOCK) / settings["model"]["layers"]
    probing = settings.get("probe") or {}
    probes = len(probing.get("tasks", ())) * (probing.get("depths") or 0) * (probing.get("samples") or 0)
    needles = options.get("needles", 0) * len(KINDS) * len(DEPTHS) * CANDIDATES
    for window in lengths:
        # Non-overlapping windows: every other shorter one is the first half of a longer one, and is not run
        # again unless tokens see later ones. Then sliding windows: a fourth of the longest are scored whole.
        tiled = options["segments"] * longest / (2 if causal and window < lengths[-1] else 1)
        whole = 0 if window < lengths[-1] else 1 / 4
        sliding = options["sliding_windows"] * window * (whole + (1 - whole) * ends) if causal else 0
        questions = probes + (needles if window >= ROOM else 0)
        passes.append((len(options["rescale"]) * (tiled + sliding) + questions * window * ends, window))
    passes.append((probe.WINDOWS * length, length))
    if causal:
        shorter = context_used.WINDOWS * len(context_used.contexts(length)) * ends
        passes.append((shorter * length, length))
        segments = min(repeated_text.SEGMENTS, options["segments"])
        for window, distances in repeated_text.windows(length, int(reached)):
            passes.append((segments * (1 + len(distances)) * window, window))
    return passes


@dataclass(frozen=True)
class Timed:
    """A run with its recorded time."""

    settings: Settings
    per_token: float  # training FLOPs
    rate: float  # FLOPs per second of each core or GPU, including the work outside matrix products
    device: str


def timed_runs(runs: Path, on: Callable[[Manifest], bool]) -> list[Timed]:
    """Return the finished runs of all studies in `runs` with a manifest that `on` accepts."""
    candidates = [timed(manifest) for _, manifest in finished_runs(runs) if on(manifest)]
    return [run for run in candidates if run is not None]


def timed(manifest: Manifest) -> Timed | None:
    """Return a finished run with its rate; None if it took less than SHORTEST or its record lacks facts."""
    seconds = sum(
        part or 0.0 for part in (manifest.seconds, manifest.seconds_validation, manifest.seconds_evaluation)
    )
    if not manifest.config or seconds < SHORTEST:
        return None
    try:
        # The recorded seconds do not include those of recalibration.
        settings = {**manifest.config, "evaluate": {**manifest.config["evaluate"], "recalibration_steps": 0}}
        cost = cost_of(settings, manifest.corpus.vocabulary or 0, manifest.tokens)
    except (ConfigError, KeyError, TypeError, ValueError):  # a record of an earlier version
        return None
    trainer = manifest.config["trainer"]
    devices, device = trainer["devices"] * trainer["nodes"], str(manifest.device)
    if not on_gpu(manifest):
        devices, device = manifest.threads or 1, processor_of(manifest) or device
    return Timed(manifest.config, cost.per_token, (cost.flops + cost.non_matmul) / seconds / devices, device)


def processor_of(manifest: Manifest) -> str | None:
    """Return the model of the processor that a run used, None if the record does not name it."""
    return None if manifest.hardware is None else manifest.hardware.processor


def on_gpu(manifest: Manifest) -> bool:
    """Return whether a run used a GPU, according to its record."""
    return not str(manifest.device).startswith("cpu")


def rate_for(settings: Settings, cost: Cost, runs: Iterable[Timed]) -> float | None:
    """Return the FLOPs per second of each core or GPU in a run; None if no run was timed.

    It is the median over the runs most like it in objective, scheme, attention, size and L, in this order.
    """
    nearest: dict[tuple[float, ...], list[float]] = {}
    for run in runs:
        unlike = [run.settings.get(part) != settings.get(part) for part in ("objective", "pos", "attention")]
        size = round(abs(math.log2(cost.per_token / run.per_token)), 1)
        other_length = run.settings.get("context_length") != settings.get("context_length")
        nearest.setdefault((*unlike, size, other_length), []).append(run.rate)
    if not nearest:
        return None
    return statistics.median(nearest[min(nearest)]) * cost.flops / (cost.flops + cost.non_matmul)
