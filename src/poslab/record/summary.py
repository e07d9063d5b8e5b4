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


def is_pretrained(run: Run) -> bool:
    """Return whether the run measured a model from transformers, which poslab has not trained."""
    return bool((run.config.get("pos") or {}).get("scheme") == "transformers")


def row(
    run: Run,
    label: str | None,
    multiples: tuple[float, ...],
    targets: tuple[Target, ...] = (),
    interval: tuple[int, int] | None = None,
) -> dict[str, Value]:
    """Return a run's row of summary.csv. Only finished runs have figures.

    Figures that depend on other runs need an argument: the `label` of the arm, the `targets` to reach, or the
    `interval` of training tokens that all runs have in common.
    """
    # Tuning runs belong to no arm, so that a mean over an arm's rows is over its compared runs.
    named = ("tuning_of", "arm") if run.tunes else ("arm", "tuning_of")
    figures: dict[str, Value] = {"study": run.study, "run": run.directory, named[0]: label, named[1]: None}
    figures |= {"status": plain(run.status, 40), "reason": plain(run.reason) or None}
    if not run.readable:
        return figures
    figures |= _described(run)
    if run.status != "done":
        return figures
    last = run.validations[-1].loss if run.validations else math.inf
    figures["validation_loss"] = last if math.isfinite(last) else None
    if run.tunes:
        return figures
    figures |= measures.extrapolation(run, multiples)
    figures |= measures.changes(figures, figures["loss_1x"], multiples, "loss_change")
    figures |= measures.changes(figures, figures["sliding_1x"], multiples, "sliding_change", "sliding")
    figures |= measures.usable_length(run) | measures.failure(run)
    for target in targets:
        figures |= _reached(run, target)
    figures["aulc_from"], figures["aulc_to"] = interval or (None, None)
    figures["aulc"] = measures.area(run.validations, interval) if interval and run.validations else None
    return figures


def _described(run: Run) -> dict[str, Value]:
    manifest = run.manifest
    tokens, seconds = manifest.tokens, manifest.seconds
    return {
        "pos": plain(run.pos, 80),
        "attention": plain(run.attention, 80),
        "part": TUNING if run.tunes else "comparison",
        "learning_rate": run.learning_rate,
        "seed": run.seed,
        "context_length": run.context_length,
        "budget": None if is_pretrained(run) else run.budget,
        "parameters": manifest.parameters,
        "tokens": tokens,
        "flops": manifest.flops,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if tokens and seconds else None,
        "seconds_validation": manifest.seconds_validation,
        "seconds_evaluation": manifest.seconds_evaluation,
        "kernel": _text(manifest.kernel),
        "precision": _text(manifest.precision),
        "device": _text(manifest.device),
        "code": _text(manifest.code),
        "started": _text(manifest.started),
        "finished": _text(manifest.finished),
        "data": _text(run.data_name),
        "data_fingerprint": _text(manifest.corpus.fingerprint),
        "vocabulary": run.vocabulary,
    }


def _text(value: str | None) -> str | None:
    return None if value is None else plain(value, 120)


def _reached(run: Run, target: Target) -> dict[str, Value]:
    reached = measures.crossing(run.validations, target.loss)
    without = None if reached else measures.tokens_without(run.validations, target.loss)
    figures: dict[str, Value] = {
        f"tokens_to_target{target.suffix}": reached.tokens if reached else None,
        f"reached{target.suffix}": reached is not None,
        f"tokens_without_target{target.suffix}": without,
    }
    if target.suffix == "":
        flops, tokens = run.manifest.flops, run.manifest.tokens
        figures["steps_to_target"] = reached.steps if reached else None
        figures["seconds_to_target"] = reached.seconds if reached else None
        figures["flops_to_target"] = flops * reached.tokens / tokens if reached and flops and tokens else None
    return figures
