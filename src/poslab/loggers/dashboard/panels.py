"""The panels of a study by section: each metric, its axis and its unit.

A line or bar is an arm: the mean over its seeds unless its title says otherwise, with a band from the lowest
to the highest seed. Metrics are those that loggers/send logs; summary figures have their names in a report's
summary.csv.
"""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import chain

import wandb_workspaces.reports.v2.interface as wr

from poslab.loggers.dashboard.contents import Contents
from poslab.measures import measurements

Panel = wr.LinePlot | wr.BarPlot | wr.ScatterPlot | wr.ParallelCoordinatesPlot

FAILURE = "failure_position"  # present if a run's loss by position rose over 5 % above the plateau
ARM = "arm"  # the configuration key that runs are grouped by
LEAST = 100  # the least that a panel's limit on its lines or bars is set to; W&B's own is 10


@dataclass(frozen=True)
class Axis:
    """The metric along x."""

    metric: str
    title: str
    log: bool = False  # base 10: W&B has no other


@dataclass(frozen=True)
class Lines:
    """Metrics drawn as lines, in one panel per title; `title` may name groups of `pattern` in braces."""

    title: str
    unit: str
    axis: Axis
    pattern: str  # matches the names of the metrics
    range_y: tuple[float | None, float | None] = (None, None)


TOKENS = Axis("tokens", "training tokens, log scale", log=True)
SECONDS = Axis("seconds", "training time (seconds)")
LENGTH = Axis("extrapolation/length", "evaluation length (tokens), log scale", log=True)
POSITION = Axis("position/position", "position in the longest windows (tokens), log scale", log=True)
RESCALED_LENGTH = Axis("rescaled/length", "evaluation length (tokens), log scale", log=True)
DEPTH = Axis("retrieval/depth", "depth of the statement in the window (0 start, 1 end)")
DISTANCE = Axis("scheme/distance", "distance between query and key (tokens), log scale", log=True)
LAYER = Axis("attention_distance/layer", "layer, counted from 0")

LOSS = "loss (nats per token)"
BITS = "bits per byte"
GAIN = "loss at L minus loss at the length (nats per token)"
CURSE = "non-overlapping minus sliding (nats per token)"
ATTENDED = "mean distance of attention (tokens)"

# The lines of each section, drawn if runs have the metrics.
LINES: Mapping[str, tuple[Lines, ...]] = {
    "Convergence": (
        Lines("Validation loss by tokens", LOSS, TOKENS, "validation/loss"),
        Lines("Validation loss by training time", LOSS, SECONDS, "validation/loss"),
        Lines("Training loss by tokens", LOSS, TOKENS, "train/loss"),
        Lines("Training loss by training time", LOSS, SECONDS, "train/loss"),
        Lines("Validation bits per byte by tokens", BITS, TOKENS, "validation/bits_per_byte"),
        Lines("Gradient norm by tokens", "norm, before clipping", TOKENS, "optimizer/gradient_norm"),
        Lines("Learning rate by tokens", "learning rate", TOKENS, "optimizer/learning_rate"),
    ),
    "Extrapolation": (
        Lines(
            "Bits per byte by length, non-overlapping windows", BITS, LENGTH, "extrapolation/bits_per_byte"
        ),
        Lines("Loss by length, sliding windows", LOSS, LENGTH, "extrapolation/sliding_loss"),
        Lines("Context gain by length", GAIN, LENGTH, "extrapolation/context_gain"),
        Lines("Early-token curse by length", CURSE, LENGTH, "extrapolation/early_token_curse"),
        Lines("Loss by position", LOSS, POSITION, "position/loss"),
        Lines("Loss by length with a changed rotation", LOSS, RESCALED_LENGTH, r"rescaled/\w+/loss"),
        Lines(
            "Retrieval ({task}) by depth at {multiple} L",
            "share of correct answers",
            DEPTH,
            r"retrieval/(?P<task>[^/]+)_(?P<multiple>\d+(?:_\d+)?)x",
            (0.0, 1.0),
        ),
    ),
    "Cost": (
        Lines("Speed by tokens", "training tokens per second", TOKENS, "cost/tokens_per_second"),
        Lines("Memory by tokens", "highest memory so far (gigabytes)", TOKENS, "cost/memory_gigabytes"),
    ),
    "Schemes": (
        Lines(
            "Bias by distance, layer {layer}",
            "added to a logit, one line per head",
            DISTANCE,
            r"scheme/bias/layer(?P<layer>\d+)_head\d+",
        ),
        Lines(
            "Upper bound of RoPE's decay by distance",
            "bound, 1 at distance 0",
            DISTANCE,
            r"scheme/bound/layer\d+",
        ),
        Lines("Attention distance by layer, mean over heads", ATTENDED, LAYER, "attention_distance/mean"),
        Lines("Attention distance by layer, nearest head", ATTENDED, LAYER, "attention_distance/least"),
        Lines("Attention distance by layer, farthest head", ATTENDED, LAYER, "attention_distance/most"),
    ),
}
# What every run logs during training; a task has no bits per byte.
TRAINING = {line.pattern for name in ("Convergence", "Cost") for line in LINES[name]}


def groups(contents: Contents) -> dict[str, list[Panel]]:
    """Return the panels for these contents by section, in reading order."""
    known = contents.keys | TRAINING
    if "task/exact" in contents.keys:
        known = known - {"validation/bits_per_byte"}
    sections: dict[str, list[Panel]] = {
        name: [panel for line in lines for panel in _drawn(contents, line, known)]
        for name, lines in LINES.items()
    }
    figures = headline(contents)
    sections["Extrapolation"] += [_bars(contents, *titled, key) for key, titled in figures.items()]
    sections["Cost"] += _cost(contents)
    every = chain(*sections.values())
    drawn = {str(metric) for panel in every if isinstance(panel, wr.LinePlot) for metric in panel.y}
    sections["Other measurements"] = list(_remaining(contents, drawn))
    return {name: panels for name, panels in sections.items() if panels}


def headline(contents: Contents) -> dict[str, tuple[str, str]]:
    """Return the most important summary figures in reading order, each with its title and unit."""
    if contents.longest is None:
        return {}
    figures = {"sliding_1x": ("Sliding-window loss at L", LOSS)}
    if contents.longest > 1:
        far = f"{contents.longest:g}"
        figures |= {
            f"sliding_{far}x": (f"Sliding-window loss at {far} L", LOSS),
            f"context_gain_{far}x": (f"Context gain at {far} L", GAIN),
            f"early_token_curse_{far}x": (f"Early-token curse at {far} L", CURSE),
            "usable_length": ("Usable length of the worst seed, 5 %", "tokens"),
            "usable_length_1pct": ("Usable length of the worst seed, 1 %", "tokens"),
        }
    if FAILURE in contents.keys:
        figures[FAILURE] = ("First failure position of any seed, 5 %", "tokens")
    return figures


def _cost(contents: Contents) -> Iterable[Panel]:
    figures = {
        "tokens_per_second": ("Speed over the whole training", "training tokens per second"),
        "seconds": ("Training time", "seconds"),
        "parameters": ("Parameters", "trained parameters"),
        "flops": ("Training FLOPs", "floating-point operations"),
    }
    for metric, (title, unit) in figures.items():
        yield _bars(contents, title, unit, metric)
    # Before the evaluation, the only loss is that of the last validation.
    loss, words = "validation/loss.last", "last validation loss"
    if contents.longest is not None:
        loss, words = "sliding_1x", "loss at L"
    yield wr.ScatterPlot(
        title=f"Training time (seconds, x) and {words} (nats per token, y)",
        x=wr.SummaryMetric("seconds"),
        y=wr.SummaryMetric(loss),
    )
    columns = {"parameters": "parameters", "flops": "FLOPs", "seconds": "seconds"}
    columns |= {"tokens_per_second": "tokens per second", loss: f"{words} (nats per token)"}
    if contents.longest is not None and contents.longest > 1:
        far = f"{contents.longest:g}"
        columns[f"sliding_{far}x"] = f"loss at {far} L (nats per token)"
    yield wr.ParallelCoordinatesPlot(
        title="Cost and loss of each run",
        columns=[
            wr.ParallelCoordinatesPlotColumn(metric=wr.Config(ARM), display_name="arm"),
            *(
                wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(metric), display_name=name)
                for metric, name in columns.items()
            ),
        ],
    )


def _remaining(contents: Contents, drawn: Set[str]) -> Iterable[Panel]:
    """Yield panels for metrics of measurements that no other panel has, over the measurement's axis."""
    for measurement in measurements():
        family, axis = measurement.family, measurement.axis
        x = f"{family}/{axis}"
        title = measurement.name.replace("_", " ").capitalize()
        for key in sorted(contents.keys - drawn):
            if axis and key != x and key.startswith(f"{family}/"):
                line = key.removeprefix(f"{family}/").replace("_", " ")
                yield _lines(contents, Lines(f"{title}: {line}", line, Axis(x, axis), key), [key])


def _drawn(contents: Contents, lines: Lines, known: Set[str]) -> Iterable[Panel]:
    """Yield panels for the `known` metrics that match: one panel per title."""
    titles: dict[str, list[str]] = {}
    for key in sorted(known, key=lambda key: (len(key), key)):  # layer 10 after layer 9
        if match := re.fullmatch(lines.pattern, key):
            named = {name: text.replace("_", ".") for name, text in match.groupdict().items()}
            titles.setdefault(lines.title.format(**named), []).append(key)
    for title, metrics in titles.items():
        yield _lines(contents, replace(lines, title=title), metrics)


def _lines(contents: Contents, lines: Lines, metrics: list[str]) -> wr.LinePlot:
    """Return a panel with lines as measured: not smoothed, with all points."""
    return wr.LinePlot(
        title=lines.title,
        x=lines.axis.metric,
        y=list(metrics),
        range_y=lines.range_y,
        log_x=lines.axis.log,
        title_x=lines.axis.title,
        title_y=lines.unit,
        ignore_outliers=False,
        groupby=wr.Config(ARM),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        smoothing_factor=0,
        smoothing_type="none",
        max_runs_to_show=limit(contents),
        # All points are drawn for runs with at most 1,500. Buckets of equal width would merge the first
        # points on a logarithmic axis.
        point_visualization_method="sampling",
    )


def _bars(contents: Contents, title: str, unit: str, metric: str) -> wr.BarPlot:
    # A mean would be wrong: some seeds have "at least" the longest length, or never fail.
    worst = metric.startswith(("usable_length", FAILURE))
    return wr.BarPlot(
        title=title,
        metrics=[metric],
        orientation="h",
        title_x=unit,
        title_y="arm",
        groupby=wr.Config(ARM),
        groupby_aggfunc="min" if worst else "mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=limit(contents),
        max_bars_to_show=limit(contents),
    )


def limit(contents: Contents) -> int:
    """Return how many lines or bars a panel may show: enough for all runs."""
    return max(LEAST, contents.runs)
