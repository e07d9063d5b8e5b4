"""What trained heads do, in the report: hand-computed figures, from records made up here."""

import pytest

from poslab.analysis.results import gather
from poslab.measures.attention_distance import uniform
from poslab.report.charts import HeatPanels
from poslab.report.sections.answer import sentences
from poslab.report.sections.answer import table as answer_table
from support.records import L, reaches, scheme_section, write_scheme

T_1 = 12.706204736432102  # Student t, 95 %, with one degree of freedom


def test_attention_distance_is_held_against_even_attention(tmp_path):
    assert uniform(L) == pytest.approx((2 + 2.5 + 3 + 3.5) / 4)
    for seed in (0, 1):
        distance = reaches([[1.0, 2.0 + seed], [3.0, 0.5]])
        write_scheme(tmp_path, f"a{seed}", distance=distance, seed=seed)
    write_scheme(tmp_path, "b", pos="alibi", distance=reaches([[0.25]]))
    section = scheme_section(gather("made_up", tmp_path, None))
    (chart,) = section.charts
    assert isinstance(chart, HeatPanels)
    assert "Attention spread evenly would have a mean of 2.750 tokens." in chart.caption
    panel = next(panel for panel in chart.panels if panel.label == "rope")
    moved = panel.cells[0][1]
    assert (moved.mean, moved.half_width) == (pytest.approx(2.5), pytest.approx(T_1 * 0.5))
    assert chart.high == 3.0
    _, arms = section.sheets["attention_distance_arms"]
    rope = next(row for row in arms if row["arm"] == "rope")
    assert (rope["mean_mean"], rope["nearest_mean"], rope["farthest_mean"]) == (1.75, 0.5, 3.0)
    assert rope["uniform_distance"] == 2.75


def test_rotated_denominators_are_shares_of_queries_and_of_the_worst_layer(tmp_path):
    def head(layer: int, number: int, vanished: int, lowest: float, negative: int) -> dict[str, float]:
        counts = {"queries": 100, "vanished": vanished, "lowest": lowest}
        return {"layer": layer, "head": number, **counts, "weights": 400, "negative": negative}

    layers = [head(0, 0, 0, 0.5, 0), head(0, 1, 4, -0.25, 40)]
    layers += [head(1, 0, 20, -1.5, 100), head(1, 1, 10, 0.0, 60)]
    for seed in (0, 1):
        write_scheme(tmp_path, f"a{seed}", attention="linear", denominators=layers, seed=seed)
    # Of this arm alone nothing is compared, so the answer says it.
    (_, said), shown = list(sentences(alone := gather("made_up", tmp_path, None))), answer_table(alone)
    assert "15.0 ± 0.0 % of the queries of its worst layer" in said
    assert [column.key for column in shown.columns] == ["arm", "sliding_1x", "sliding_8x"]
    write_scheme(tmp_path, "b", pos="alibi")
    results = gather("made_up", tmp_path, None)
    assert not any("divide" in sentence for sentence in sentences(results))
    section = scheme_section(results)
    table = next(table for table in section.tables if table.title == "Rotated denominators")
    (row,) = table.records
    shown = {name: row[f"{name}_mean"] for name in ("vanished", "vanished_worst_layer", "lowest", "negative")}
    expected = {"vanished": 34 / 400, "vanished_worst_layer": 0.15, "lowest": -1.5, "negative": 200 / 1600}
    assert shown == pytest.approx(expected)
    assert len(section.sheets["rotated_denominators"][1]) == 8


def test_what_is_read_of_positions_stands_beside_what_is_read_of_shuffled_ones(tmp_path):
    """Of the best layer; an older record, without the control, is only in the CSV file."""

    def layer(number: int, share: float, shuffled: float | None) -> dict[str, float | None]:
        sums = {"tokens": 80, "squared_error": 20 * (1 - share), "squared_deviation": 20.0}
        control = {} if shuffled is None else {"shuffled_error": 20 * (1 - shuffled), "fitted_windows": 40}
        return {"layer": number, **sums, **control}

    for seed in (0, 1):
        places = [layer(0, 0.5, 0.01), layer(1, 0.25, -0.01)]
        write_scheme(tmp_path, f"a{seed}", seed=seed, places=places)
    write_scheme(tmp_path, "b", pos="alibi", places=[layer(0, 0.125, None)])
    section = scheme_section(gather("made_up", tmp_path, None))
    table = next(table for table in section.tables if "position_probe_arms.csv" in table.sources)
    shown = {str(row["arm"]): (row["explained_mean"], row["shuffled_mean"]) for row in table.records}
    assert shown == {"rope": (pytest.approx(0.5), pytest.approx(0.01))}
    assert {row[-1].text for row in table.rows} == {"1.0 ± 0.0"}
    fitted = [(row["arm"], row["fitted_windows"]) for row in section.sheets["position_probe"][1]]
    assert sorted(fitted, key=str) == [("alibi", None), *[("rope", 40)] * 4]
