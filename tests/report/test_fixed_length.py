"""Usable length against one fixed loss, hand-computed: 5 % over the reference's mean sliding loss at L."""

import pytest

from poslab.analysis.estimates import usable_columns
from poslab.analysis.results import gather
from poslab.analysis.sheets import arms_sheet
from poslab.report import cells
from poslab.report.sections.overview import arms_table
from poslab.report.write import write_report
from support.records import L, plan, read, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

RISING = {1.0: 2.0, 2.0: 2.05, 4.0: 2.15, 8.0: 2.3}  # within 5 % of 2.0, which is 2.1, up to 2 L
FLAT_AND_BAD = {1.0: 3.0, 2.0: 3.0, 4.0: 3.0, 8.0: 3.0}  # it never used its context
GOOD = {1.0: 1.8, 2.0: 1.95, 4.0: 2.08, 8.0: 2.3}  # past 5 % of its own loss at 2 L, under 2.1 up to 4 L


@pytest.fixture
def results(tmp_path):
    for seed, shift in enumerate((-0.08, 0.08)):  # the mean is 2.0, which no seed has
        write_run(tmp_path, f"rope-{seed}", seed=seed, sliding=RISING, shift=shift)
        write_run(tmp_path, f"none-{seed}", pos="none", seed=seed, sliding=FLAT_AND_BAD, shift=shift)
        write_run(tmp_path, f"fox-{seed}", pos="fox", seed=seed, sliding=GOOD)
    plan(tmp_path, ["rope-0", "rope-1", "none-0", "none-1", "fox-0", "fox-1"], "rope")
    return gather("made_up", tmp_path, None)


def test_each_run_is_held_against_the_reference_s_mean(results):
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


def test_both_lengths_stand_in_the_table_and_the_sheet(results, tmp_path):
    table = arms_table(results)
    titles = [(column.group, column.title) for column in table.columns]
    own, fixed = (titles.index(("Usable length, tokens", f"{kind} loss")) for kind in ("Own", "Fixed"))
    shown = {row[0].text: (row[own].text, row[fixed].text) for row in table.rows}
    assert shown == {"rope": ("16", "8 to 32"), "none": ("≥ 64", "< L"), "fox": ("8", "32")}
    assert "(fixed loss): 2.100 nats, the sliding loss of rope at L plus 5 %." in table.caption
    directory = write_report("made_up", tmp_path, tmp_path / "reports").directory
    facts = {row["key"]: row["value"] for row in read(directory / "facts.csv")}
    assert float(facts["usable_length_fixed_limit"]) == results.fixed_limit
    (rope,) = (row for row in read(directory / "arms.csv") if row["arm"] == "rope")
    ends = ("min", "max", "min_at_least", "max_at_least", "multiple_min", "multiple_max")
    assert [rope[f"usable_length_fixed_{end}"] for end in ends] == ["8", "32", "false", "false", "1.0", "4.0"]


def test_another_reference_is_another_limit(results, tmp_path):
    other = gather("made_up", tmp_path, "none")
    assert other.fixed_limit == pytest.approx(1.05 * 3.0)
    assert {row["usable_length_fixed"] for row in other.rows} == {8 * L}
    assert [row["usable_length"] for row in other.rows] == [row["usable_length"] for row in results.rows]


def test_losses_on_other_text_are_held_against_no_loss_of_the_reference(tmp_path):
    write_run(tmp_path, "rope", sliding=RISING)
    other = {"name": "stdlib", "fingerprint": "beef", "vocabulary": 256}
    write_run(tmp_path, "alibi", pos="alibi", data=other)
    results = gather("made_up", tmp_path, "rope")
    (row,) = (row for row in results.rows if row["run"] == "alibi")
    assert row["usable_length"] == 8 * L
    assert row["usable_length_fixed"] is None
    (shown,) = (row for row in arms_sheet(results)[1] if row["arm"] == "alibi")
    assert cells.usable(shown, "usable_length_fixed").text == "–"
    assert cells.usable(shown, "usable_length").text == "≥ 64"


def test_where_L_differs_both_lengths_are_multiples_of_it(tmp_path):
    write_run(tmp_path, "rope", sliding=RISING)
    write_run(tmp_path, "long", sliding=RISING, config={"context_length": 2 * L})
    results = gather("made_up", tmp_path, "rope L=8")
    own, fixed = cells.usable_keys(results)
    (row,) = (row for row in arms_sheet(results)[1] if row["reference"])
    assert (cells.usable(row, own).text, cells.usable(row, fixed).text) == ("2 L", "2 L")
    assert "Usable length, multiples of L" in {column.group for column in arms_table(results).columns}


@pytest.mark.parametrize("key", ["usable_length", "usable_length_fixed"])
def test_each_length_has_its_own_at_least(key):
    rows = [
        {key: 8 * L, f"{key}_multiple": 8.0, f"{key}_at_least": True},
        {key: 0, f"{key}_multiple": 0.0, f"{key}_at_least": False},
    ]
    columns = usable_columns(rows, key)
    assert cells.usable(columns, key).text == "< L to ≥ 64"
    assert cells.usable(columns, f"{key}_multiple").text == "< L to ≥ 8 L"
