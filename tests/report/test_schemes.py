"""The section on schemes, with retrieval: hand-computed figures from made-up records."""

import re

import pytest

from poslab.analysis.results import gather
from poslab.measures.attention_distance import uniform
from poslab.measures.retrieval import Retrieval
from poslab.record.reader import ReportError
from poslab.report.study_tables import StudyTables
from support.commands import ROOT
from support.records import (
    L,
    answers,
    biases,
    bounds,
    of_schemes,
    reaches,
    scheme_section,
    seal,
    turns,
    write_run,
    write_scheme,
)

T_1 = 12.706204736432102  # Student t, 95 %, with one degree of freedom


def test_a_bias_has_a_line_per_head_and_a_fixed_one_has_no_interval(tmp_path):
    distances = [0, 1, 2, 4, 8, 16, 63]
    for seed in (0, 1):
        write_scheme(tmp_path, f"a{seed}", bias=biases([1.0, 0.125], distances), pos="alibi", seed=seed)
        trained = biases([0.01 * (seed + 1)], distances)
        write_scheme(tmp_path, f"t{seed}", bias=trained, pos="t5", seed=seed)
        write_scheme(tmp_path, f"n{seed}", pos="none", seed=seed)
    results = gather("made_up", tmp_path, None)
    assert (
        "No bias and no rotation that depends on the distance in tokens: none."
        in scheme_section(results).findings
    )
    chart = of_schemes(results, "bias_by_distance")
    alibi, t5 = chart.panels
    assert (alibi.title, t5.title) == ("alibi", "t5")
    steep, gentle = alibi.series
    # Past 12 nats under its highest value a line is not drawn, but all of it is in the CSV.
    assert [point.x for point in steep.points] == [1, 2, 3, 5, 9]
    assert [point.x for point in gentle.points] == [1, 2, 3, 5, 9, 17, 64]
    assert all(point.half_width is None and point.n == 2 for point in steep.points)
    last = t5.series[0].points[-1]
    assert (last.mean, last.half_width) == (pytest.approx(-0.945), pytest.approx(T_1 * 0.315))
    assert len(chart.rows) == 3 * len(distances)
    far = next(row for row in chart.rows if (row["arm"], row["head"], row["distance"]) == ("alibi", 0, 63))
    assert (far["mean"], far["half_width"], far["drawn"]) == (-63.0, None, False)
    assert {number for number, _ in chart.legend} == {series.arm for series in alibi.series}
    assert "12 nats below its highest point." in chart.caption


def test_schemes_with_different_layers_show_the_first_and_last_and_the_mean_bound(tmp_path):
    bias = [row for layer in range(3) for row in biases([0.1 * layer], [0, 1, 2], layer)]
    for seed, far in enumerate((0.5, 0.3)):
        bound = bounds({0: 1.0, 1: 0.8, 8: far}, 0) + bounds({0: 1.0, 1: 0.6, 8: far}, 2)
        rotation = turns([4.0], 0) + turns([9.0], 2)
        write_scheme(tmp_path, f"a{seed}", bias=bias, bound=bound, rotation=rotation, seed=seed)
        write_scheme(tmp_path, f"b{seed}", pos="alibi", seed=seed)
    results = gather("made_up", tmp_path, None)
    chart, line = (of_schemes(results, name) for name in ("bias_by_distance", "rotation_bound"))
    assert [panel.title for panel in chart.panels] == ["rope, layer 0", "rope, layer 2"]
    assert {row["layer"] for row in chart.rows} == {0, 1, 2}
    (rope,) = line.series  # the arm with a rotation
    assert (rope.label, line.mark) == ("rope", L)
    # At distance 0 it is 1 by definition, and not on a logarithmic axis.
    near, far_point = rope.points
    assert (near.x, near.mean, near.half_width) == (1.0, pytest.approx(0.7), None)
    assert (far_point.x, far_point.mean, far_point.half_width) == (
        8.0,
        pytest.approx(0.4),
        pytest.approx(T_1 * 0.1),
    )
    assert "the mean over layers with a bound of their own" in line.caption


def test_attention_distance_is_compared_with_even_attention(tmp_path):
    assert uniform(L) == pytest.approx((2 + 2.5 + 3 + 3.5) / 4)
    for seed in (0, 1):
        distance = reaches([[1.0, 2.0 + seed], [3.0, 0.5]])
        write_scheme(tmp_path, f"a{seed}", distance=distance, seed=seed)
    write_scheme(tmp_path, "b", pos="alibi", distance=reaches([[0.25]]))
    section = scheme_section(gather("made_up", tmp_path, None))
    (chart,) = section.charts
    assert "Attention spread evenly would have a mean of 2.750 tokens." in chart.caption
    panel = next(panel for panel in chart.panels if panel.label == "rope")
    moved = panel.cells[0][1]
    assert (moved.mean, moved.half_width) == (pytest.approx(2.5), pytest.approx(T_1 * 0.5))
    assert chart.high == 3.0
    _, arms = section.sheets["attention_distance_arms"]
    rope = next(row for row in arms if row["arm"] == "rope")
    assert (rope["mean_mean"], rope["nearest_mean"], rope["farthest_mean"]) == (1.75, 0.5, 3.0)


def test_runs_without_a_table_have_no_figures(tmp_path):
    write_run(tmp_path, "old")
    assert Retrieval().section(StudyTables(gather("made_up", tmp_path, None))) is None
    assert scheme_section(gather("made_up", tmp_path, None)) is None
    for seed in (0, 1):
        new = write_scheme(tmp_path, f"b{seed}", pos="alibi", seed=seed, bias=biases([1.0], [0, 1]))
    (new / "scheme_rotation.csv").unlink()
    seal(new)
    section = scheme_section(gather("made_up", tmp_path, None))
    without = "No attention distance, since the mixer has no matrix of weights: alibi."
    assert section.findings == (without,)


def test_a_table_that_lacks_a_column_is_named(tmp_path):
    directory = write_scheme(tmp_path, "a", answers({(1.0, 0.0): 1}))
    (directory / "probe.csv").write_text("task,multiple\n")
    seal(directory)
    with pytest.raises(ReportError, match=r"a: probe.csv has no column length"):
        Retrieval().section(StudyTables(gather("made_up", tmp_path, None)))


def test_numbers_are_legible_on_every_shade():
    """WCAG AA, 4.5 to 1, at both ends of the scale in light and dark mode, so also between them."""
    css = (ROOT / "src/poslab/report/render/assets/page.css").read_text()
    names, pair = ("page", "ink", "heat-full"), r"light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)"
    found = {name: re.findall(f"--{name}: {pair}", css)[0] for name in names}

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for page_color, ink, full in zip(*(found[name] for name in names), strict=True):
        for shade in (page_color, full):
            bright, dim = sorted((luminance(ink), luminance(shade)), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 4.5
