"""What page.js draws: the arms and charts as JSON inside the page."""

import json
import math
from collections.abc import Sequence
from typing import Any

from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, Point
from poslab.report.formatting import interval
from poslab.report.panels import PanelChart
from poslab.report.style import look

POINTS = 3_000  # in a chart: more, of a thousand runs, would take the page past 1 MB


def chart_data(results: Results, lines: Sequence[LineChart], panels: Sequence[PanelChart]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(
        _data(results, lines, panels), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _data(results: Results, lines: Sequence[LineChart], panels: Sequence[PanelChart]) -> dict[str, Any]:
    charts = [_chart(chart) | {"of": "arms", "panel": 0, "panels": 1} for chart in lines]
    for chart in panels:
        charts += [
            _chart(panel) | {"of": "lines", "panel": i, "panels": len(chart.panels), "title": panel.title}
            for i, panel in enumerate(chart.panels)
        ]
    rotations = {number: _look(number, label) for chart in panels for number, label in chart.legend}
    arms = [_look(i, item.arm.label) for i, item in enumerate(results.arms)]
    return {"arms": arms, "lines": rotations, "charts": charts}


def _look(number: int, label: str) -> dict[str, Any]:
    one = look(number)
    return {
        "label": label,
        "light": one.light,
        "dark": one.dark,
        "marker": one.marker,
        "dash": list(one.dash),
    }


def _chart(chart: LineChart) -> dict[str, Any]:
    """A chart for the script; of very many points every n-th, the CSV has them all."""
    every = max(1, math.ceil(sum(len(series.points) for series in chart.series) / POINTS))
    kept = [s.points[::-1][::every][::-1] for s in chart.series]
    xs = sorted({point.x for points in kept for point in points})
    series = []
    for one, points in zip(chart.series, kept, strict=True):
        at = {point.x: point for point in points}
        found = [at.get(x) for x in xs]
        shown = [None if point is None else _as_shown(point) for point in found]
        counts = [None if point is None else point.n for point in found]
        series.append(
            {
                "arm": one.arm,
                "mean": [None if pair is None else pair[0] for pair in shown],
                "half": [None if pair is None else pair[1] for pair in shown],
                "n": points[0].n if len({point.n for point in points}) == 1 else counts,
                "lowest": _short(min(point.lowest for point in one.points)),
                "highest": _short(max(point.highest for point in one.points)),
            }
        )
    return {
        "name": chart.name,
        "x": [_short(x) for x in xs],
        "x_label": chart.x_label,
        "y_label": chart.y_label,
        "base": chart.base,
        "ticks": [[_short(x), label] for x, label in chart.ticks],
        "mark": chart.mark,
        "ceiling": None if chart.ceiling is None else _short(chart.ceiling),
        "level": None if chart.level is None else _short(chart.level),
        "stepped": chart.stepped,
        "frame": None if chart.frame is None else [_short(y) for y in chart.frame],
        "series": series,
    }


def _as_shown(point: Point) -> tuple[float, float | None]:
    """The mean and half its interval, in as few digits as give the text that full precision gives."""
    mean, half = point.mean, point.half_width
    shorter = (
        (float(f"{mean:.{digits}g}"), None if half is None else float(f"{half:.{digits}g}"))
        for digits in (6, 9, 12)
    )
    return next((pair for pair in shorter if interval(*pair) == interval(mean, half)), (mean, half))


def _short(value: float) -> float:
    return float(f"{value:.6g}")
