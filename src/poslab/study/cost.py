"""What runs cost: their operations, and how long these take by finished runs on such a machine.

A run's time is that of a recorded run, as like it as there is, in proportion to the operations of both.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.schema import MULTIPLES, RunConfig
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.record.schema import MANIFEST
from poslab.record.seal import UnreadableError

Settings = Mapping[str, Any]  # those that decide a run's result, as its record holds them


@dataclass(frozen=True)
class Cost:
    """The operations of a run."""

    parameters: int
    tokens: int  # of training
    training: float  # FLOPs, forward and backward (GPT.training_flops)
    evaluation: float  # FLOPs of validations and of the evaluation after training, about

    @property
    def flops(self) -> float:
        return self.training + self.evaluation

    @property
    def per_token(self) -> float:
        return self.training / self.tokens


class Costs:
    """The costs of a command's runs; a model that several of them have is built once, without weights."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[int, float, int | None]] = {}

    def of(self, config: RunConfig, vocabulary: int) -> Cost:
        """Return the cost of a resolved configuration on a text of so many different tokens."""
        trainer = config.trainer
        tokens = trainer.max_steps * trainer.batch_size * config.context_length
        fields = {"context_length", "pos", "attention", "objective", "model"}
        key = f"{vocabulary} {config.model_dump_json(include=fields)}"
        if key not in self._models:
            self._models[key] = _model(config, vocabulary)
        parameters, per_token, max_length = self._models[key]
        evaluated = evaluated_tokens(config.result_settings(), max_length)
        return Cost(parameters, tokens, per_token * tokens, per_token / 3 * evaluated)


def _model(config: RunConfig, vocabulary: int) -> tuple[int, float, int | None]:
    """Return a model's parameters, training FLOPs per token and the scheme's longest length."""
    import torch

    from poslab.model.gpt import GPT, build_parts
    from poslab.objectives import build_objective

    extra = build_objective(config.objective).extra_tokens
    geometry, scheme, attentions = build_parts(config)
    with torch.device("meta"):
        gpt = GPT(vocabulary + extra, geometry, scheme, attentions, config.model)
    return gpt.parameter_count(), gpt.training_flops(1), scheme.max_length


def evaluated_tokens(settings: Settings, max_length: int | None) -> float:
    """Return about how many tokens the validations and the evaluation of a run pass through its model."""
    length, options = settings["context_length"], settings["evaluate"]
    validated: float = options["validations"] * options["validation_windows"] * length
    if settings["data"].get("source") == "none":  # the samples of a task are short beside that
        return validated
    longest = options["longest"] * length
    reached = min(longest, max_length or longest)
    lengths = [multiple * length for multiple in (0.5, *MULTIPLES) if multiple * length <= reached]
    # Windows side by side, where the first half of each is a shorter one's; then sliding ones.
    tiled = options["segments"] * longest * (1 + len(lengths)) / 2
    sliding = options["sliding_windows"] * sum(lengths)
    return validated + len(options["rescale"]) * (tiled + sliding)


@dataclass(frozen=True)
class Timed:
    """A run whose time is on record."""

    settings: Settings
    per_token: float  # training FLOPs
    rate: float  # FLOPs a second, of each core or GPU
    device: str


def timed_runs(runs: Path, on: Callable[[Manifest], bool]) -> list[Timed]:
    """Return the finished runs in the folder of all studies that lay on a machine which `on` accepts."""
    manifests = (_manifest(path.parent) for path in sorted(runs.glob(f"*/*-*/{MANIFEST}")))
    found = (timed(manifest) for manifest in manifests if manifest is not None and on(manifest))
    return [run for run in found if run is not None]


def _manifest(directory: Path) -> Manifest | None:
    with suppress(UnreadableError, OSError):
        manifest = read_manifest(directory)
        return manifest if manifest is not None and manifest.status == "done" else None
    return None


def timed(manifest: Manifest) -> Timed | None:
    """Return the rate of a finished run; None where its record lacks what that takes."""
    settings, flops, tokens = manifest.config, manifest.flops, manifest.tokens
    seconds = sum(
        part or 0.0 for part in (manifest.seconds, manifest.seconds_validation, manifest.seconds_evaluation)
    )
    if not settings or not flops or not tokens or not seconds:
        return None
    try:
        evaluated = evaluated_tokens(settings, manifest.max_length)
        trainer = settings["trainer"]
        devices = trainer["devices"] * trainer["nodes"]
    except (KeyError, TypeError):  # of an earlier version
        return None
    device = str(manifest.device)
    if not on_gpu(manifest):
        devices, device = manifest.threads or 1, processor_of(manifest) or device
    work = flops + flops / tokens / 3 * evaluated
    return Timed(settings, flops / tokens, work / seconds / devices, device)


def processor_of(manifest: Manifest) -> str | None:
    """Return the model of the processor that a run had."""
    return None if manifest.hardware is None else manifest.hardware.processor


def on_gpu(manifest: Manifest) -> bool:
    """Return whether a run was on a GPU, by its record."""
    return not str(manifest.device).startswith("cpu")


def rate_for(settings: Settings, cost: Cost, runs: Iterable[Timed]) -> float | None:
    """Return the FLOPs a second that each core or GPU does in a run; None where no run was timed.

    It is the median of the runs most like it: by scheme, attention, objective and size, in this order.
    """
    nearest: dict[tuple[float, ...], list[float]] = {}
    for run in runs:
        unlike = [run.settings.get(part) != settings.get(part) for part in ("pos", "attention", "objective")]
        size = round(abs(math.log2(cost.per_token / run.per_token)), 1)
        lengths = run.settings.get("context_length") != settings.get("context_length")
        nearest.setdefault((*unlike, size, lengths), []).append(run.rate)
    return statistics.median(nearest[min(nearest)]) if nearest else None
