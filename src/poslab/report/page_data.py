"""What page.js draws: the arms and charts as JSON inside the page."""

import json
import math
from collections.abc import Sequence
from typing import Any

from poslab.report.charts import LineChart
from poslab.report.panels import PanelChart
from poslab.report.results import Results
from poslab.report.style import look

POINTS = 24_000  # in all charts together: more would take the page past 1 MB


def chart_data(results: Results, lines: Sequence[LineChart], panels: Sequence[PanelChart]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(
        _data(results, lines, panels), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _data(results: Results, lines: Sequence[LineChart], panels: Sequence[PanelChart]) -> dict[str, Any]:
    drawn = [*lines, *(panel for chart in panels for panel in chart.panels)]
    total = sum(len(series.points) for chart in drawn for series in chart.series)
    every = math.ceil(total / POINTS)
    charts = [_chart(chart, every) | {"of": "arms", "panel": 0, "panels": 1} for chart in lines]
    for chart in panels:
        charts += [
            _chart(panel, every)
            | {"of": "lines", "panel": i, "panels": len(chart.panels), "title": panel.title}
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


def _chart(chart: LineChart, every: int) -> dict[str, Any]:
    """A chart for the script; of very many points every n-th, the CSV has them all."""
    kept = [s.points[::-1][::every][::-1] for s in chart.series]
    xs = sorted({point.x for points in kept for point in points})
    series = []
    for one, points in zip(chart.series, kept, strict=True):
        at = {point.x: point for point in points}
        found = [at.get(x) for x in xs]
        bounds = [
            (p.mean, p.half_width) if p is not None and p.half_width is not None else None for p in found
        ]
        series.append(
            {
                "arm": one.arm,
                "mean": [None if p is None else _short(p.mean) for p in found],
                "low": [None if b is None else _short(b[0] - (b[1] or 0)) for b in bounds],
                "high": [None if b is None else _short(b[0] + (b[1] or 0)) for b in bounds],
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


def _short(value: float) -> float:
    return float(f"{value:.6g}")
