"""What a study's runs have measured, which decides its panels: from records, or as W&B has it."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.panel import plain
from poslab.record import read_sealed
from poslab.report.load import Run, load

LONGEST_QUESTION = 500  # letters

NUMBER = r"(\d+(?:\.\d+)?)"
SLIDING = re.compile(rf"sliding_{NUMBER}x")
RESCALED = re.compile(r"rescaled/(\w+)/loss")
RETRIEVAL = re.compile(rf"retrieval/(\w+)/{NUMBER}x")
BIAS = re.compile(r"scheme/bias/layer(\d+)_head(\d+)")
BOUND = re.compile(r"scheme/bound/layer(\d+)")
ATTENDED = "attention_distance/mean"


@dataclass(frozen=True)
class Contents:
    """What any run of a study has; multiples are those of the training length L."""

    question: str
    runs: int  # that compare; trials of a learning rate are not among them
    multiples: tuple[float, ...]  # with a loss over sliding windows
    rescaled: tuple[str, ...]  # methods
    retrieval: tuple[tuple[str, float], ...]  # task and multiple
    bias: tuple[tuple[int, tuple[int, ...]], ...]  # a layer and its heads
    bound: tuple[int, ...]  # layers
    attended: bool

    @property
    def longest(self) -> float | None:
        """The largest multiple past L, if any."""
        return next((k for k in reversed(self.multiples) if k > 1), None)


def from_records(study: str, runs: Path) -> Contents:
    """What the records in `runs`/`study` hold. Raises ReportError where there are none."""
    found = load(study, runs).runs
    compared = [run for run in found if run.readable and not run.tunes]
    keys = {key for run in compared for key in _keys(run)}
    manifests = [run.manifest for run in found if run.readable]
    asked = [_plan(runs / study), *manifests, *(manifest["config"] for manifest in manifests)]
    return _contents(keys, asked, len(compared))


def from_wandb(runs: Iterable[tuple[Mapping[str, Any], Collection[str]]]) -> Contents:
    """What W&B has of a study: its runs' configurations, each with the keys that the run has logged."""
    found = [(config, keys) for config, keys in runs if config.get("part") != "tuning"]
    logged = {key for _, keys in found for key in keys}
    return _contents(logged, [config for config, _ in found], len(found))


def _keys(run: Run) -> Iterable[str]:
    """The keys under which W&B has what the record of a finished run holds."""
    yield from (f"sliding_{multiple:g}x" for protocol, multiple in run.segments if protocol == "sliding")
    yield from (f"rescaled/{method}/loss" for method in run.rescaled)
    yield from (f"retrieval/{task}/{multiple:g}x" for task, multiple, _ in run.probe)
    yield from (f"scheme/bias/layer{layer}_head{head}" for layer, head in run.scheme.bias or ())
    yield from (f"scheme/bound/layer{layer}" for layer in run.scheme.bound or ())
    if run.scheme.attended:
        yield ATTENDED


def _contents(keys: Collection[str], asked: Iterable[Mapping[str, Any]], runs: int) -> Contents:
    heads: dict[int, list[int]] = {}
    for layer, head in sorted((int(one), int(other)) for one, other in _matches(BIAS, keys)):
        heads.setdefault(layer, []).append(head)
    questions = (config.get("question") for config in asked)
    question = next((text for text in questions if isinstance(text, str) and text.strip()), "")
    return Contents(
        question=plain(question).strip()[:LONGEST_QUESTION],
        runs=runs,
        multiples=tuple(sorted(float(multiple) for (multiple,) in _matches(SLIDING, keys))),
        rescaled=tuple(sorted(method for (method,) in _matches(RESCALED, keys))),
        retrieval=tuple(sorted((task, float(multiple)) for task, multiple in _matches(RETRIEVAL, keys))),
        bias=tuple((layer, tuple(found)) for layer, found in heads.items()),
        bound=tuple(sorted(int(layer) for (layer,) in _matches(BOUND, keys))),
        attended=ATTENDED in keys,
    )


def _matches(pattern: re.Pattern[str], keys: Iterable[str]) -> Iterable[tuple[str, ...]]:
    return (found.groups() for key in keys if (found := pattern.fullmatch(key)))


def _plan(folder: Path) -> Mapping[str, Any]:
    """What the study's own file says, if there is one that can be read."""
    try:
        return read_sealed(folder / "study.json")
    except (OSError, ValueError):
        return {}
