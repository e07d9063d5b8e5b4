"""The figures of one run under the names of summary.csv."""

import math
from dataclasses import dataclass

from poslab.config.text import plain
from poslab.record import measures
from poslab.record.measures import Value
from poslab.record.reader import TUNING, Run


@dataclass(frozen=True)
class Target:
    """A validation loss to reach: the reference's median over its seeds at a fraction of its budget."""

    fraction: float
    suffix: str
    loss: float
    n: int


def row(
    run: Run,
    label: str | None,
    multiples: tuple[float, ...],
    targets: tuple[Target, ...] = (),
    interval: tuple[int, int] | None = None,
) -> dict[str, Value]:
    """A run's row of summary.csv. Figures are there for the runs that count alone.

    What takes other runs to say is there where they are told: `label` of its arm, `targets` to reach, and the
    `interval` of training tokens that all have in common.
    """
    # A run that tunes is in no arm: a mean over the rows of an arm is one over its own runs.
    named = ("tuning_of", "arm") if run.tunes else ("arm", "tuning_of")
    found: dict[str, Value] = {"study": run.study, "run": run.directory, named[0]: label, named[1]: None}
    found |= {"status": plain(run.status, 40), "reason": plain(run.reason) or None}
    if not run.readable:
        return found
    found |= _described(run)
    if run.status != "done":
        return found
    last = run.validations[-1].loss if run.validations else math.inf
    found["validation_loss"] = last if math.isfinite(last) else None
    if run.tunes:
        return found
    found |= measures.extrapolation(run, multiples)
    found |= measures.changes(found, found["loss_1x"], multiples, "loss_change")
    found |= measures.usable_length(run) | measures.failure(run)
    for target in targets:
        found |= _reached(run, target)
    found["aulc_from"], found["aulc_to"] = interval or (None, None)
    found["aulc"] = measures.area(run.validations, interval) if interval and run.validations else None
    return found


def _described(run: Run) -> dict[str, Value]:
    manifest = run.manifest
    data = manifest.get("data") or {}
    tokens, seconds = _number(manifest.get("tokens")), _number(manifest.get("seconds"))
    return {
        "pos": plain(run.pos, 80),
        "attention": plain(run.attention, 80),
        "part": TUNING if run.tunes else "comparison",
        "learning_rate": run.learning_rate,
        "seed": run.seed,
        "context_length": run.context_length,
        "budget": run.budget,
        "parameters": _number(manifest.get("parameters")),
        "tokens": tokens,
        "flops": _number(manifest.get("flops")),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if tokens and seconds else None,
        "seconds_validation": _number(manifest.get("seconds_validation")),
        "seconds_evaluation": _number(manifest.get("seconds_evaluation")),
        **{
            key: _text(manifest.get(key))
            for key in ("kernel", "precision", "device", "code", "started", "finished")
        },
        "data": _text(data.get("name")),
        "data_fingerprint": _text(data.get("fingerprint")),
        "vocabulary": _number(data.get("vocabulary")),
    }


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return None if value is None else plain(value, 120)


def _reached(run: Run, target: Target) -> dict[str, Value]:
    found = measures.crossing(run.validations, target.loss)
    figures: dict[str, Value] = {
        f"tokens_to_target{target.suffix}": found.tokens if found else None,
        f"reached{target.suffix}": found is not None,
        f"tokens_without_target{target.suffix}": None
        if found
        else measures.tokens_without(run.validations, target.loss),
    }
    if target.suffix == "":
        flops, tokens = _number(run.manifest.get("flops")), _number(run.manifest.get("tokens"))
        figures["steps_to_target"] = found.steps if found else None
        figures["seconds_to_target"] = found.seconds if found else None
        figures["flops_to_target"] = flops * found.tokens / tokens if found and flops and tokens else None
    return figures
