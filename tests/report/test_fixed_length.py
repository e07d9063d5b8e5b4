"""Usable length against one fixed loss, hand-computed: 5 % over the reference's mean sliding loss at L."""

import pytest

from poslab.analysis.results import gather
from poslab.analysis.sheets import arms_sheet
from poslab.report import cells
from poslab.report.sections.overview import arms_table
from support.records import L, write_run

RISING = {1.0: 2.0, 2.0: 2.05, 4.0: 2.15, 8.0: 2.3}  # within 5 % of 2.0, which is 2.1, up to 2 L
FLAT_AND_BAD = {1.0: 3.0, 2.0: 3.0, 4.0: 3.0, 8.0: 3.0}  # it never used its context
GOOD = {
    1.0: 1.8,
    2.0: 1.95,
    4.0: 1.85,
    8.0: 2.3,
}  # over 5 % of its own loss only at 2 L, under 2.1 up to 4 L


@pytest.fixture
def results(tmp_path):
    for seed, shift in enumerate((-0.08, 0.08)):  # the mean is 2.0, which no seed has
        write_run(tmp_path, f"rope-{seed}", seed=seed, sliding=RISING, shift=shift)
        write_run(tmp_path, f"none-{seed}", pos="none", seed=seed, sliding=FLAT_AND_BAD, shift=shift)
        write_run(tmp_path, f"fox-{seed}", pos="fox", seed=seed, sliding=GOOD)
    return gather("made_up", tmp_path, "rope")


def test_each_run_is_compared_with_the_references_mean(results, tmp_path):
    assert results.fixed_limit == pytest.approx(1.05 * 2.0)
    rows = {str(row["run"]): row for row in results.rows}
    lengths = {name: (row["usable_length"], row["usable_length_fixed"]) for name, row in rows.items()}
    assert lengths == {
        "rope-0": (2 * L, 4 * L),  # 1.92, 1.97, 2.07, 2.22
        "rope-1": (2 * L, L),  # 2.08, 2.13, 2.23, 2.38
        "none-0": (8 * L, 0),
        "none-1": (8 * L, 0),
        "fox-0": (L, 4 * L),
        "fox-1": (L, 4 * L),
    }
    assert rows["rope-0"]["usable_length_fixed_multiple"] == 4
    assert rows["none-0"]["usable_length_at_least"] is True
    assert rows["none-0"]["usable_length_fixed_at_least"] is False
    other = gather("made_up", tmp_path, "none")
    assert other.fixed_limit == pytest.approx(1.05 * 3.0)
    assert {row["usable_length_fixed"] for row in other.rows} == {8 * L}


def test_other_text_has_no_fixed_limit_and_mixed_lengths_are_multiples_of_L(tmp_path):
    write_run(tmp_path, "rope", sliding=RISING)
    write_run(tmp_path, "long", sliding=RISING, config={"context_length": 2 * L})
    other = {"name": "stdlib", "fingerprint": "beef", "vocabulary": 256}
    write_run(tmp_path, "alibi", pos="alibi", data=other)
    results = gather("made_up", tmp_path, "rope L=8")
    own, fixed = cells.usable_keys(results)
    rows = {row["arm"]: row for row in arms_sheet(results)[1]}
    assert [cells.usable(rows["rope L=8"], key).text for key in (own, fixed)] == ["2 L", "2 L"]
    assert [cells.usable(rows["alibi L=8"], key).text for key in (own, fixed)] == ["≥ 8 L", "–"]
    assert "Usable length, multiples of L" in {column.group for column in arms_table(results).columns}
