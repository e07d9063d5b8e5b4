"""Retrieval in the report: hand-computed figures from made-up records."""

from pathlib import Path

import pytest

from poslab.analysis.results import gather
from poslab.measures.retrieval import Retrieval
from poslab.report.document import Section
from poslab.report.study_tables import StudyTables
from support.records import L, answers, write_scheme

T_1 = 12.706204736432102  # Student t, 95 %, with one degree of freedom


def retrieval(runs: Path) -> Section | None:
    return Retrieval().section(StudyTables(gather("made_up", runs, None)))


def test_exact_answers_are_a_share_per_seed_and_then_a_mean(tmp_path):
    for seed, exact in enumerate((10, 8)):
        found = {(1.0, 0.0): exact, (1.0, 1.0): 10, (2.0, 0.0): 0, (2.0, 1.0): 4 * seed}
        write_scheme(tmp_path, f"a{seed}", answers(found, nats=1 + seed), seed=seed)
    section = retrieval(tmp_path)
    (chart,) = section.charts
    rows = {(row["multiple"], row["depth"]): row for row in chart.rows}
    assert rows[1.0, 0.0]["mean"] == pytest.approx(0.9)
    assert rows[1.0, 0.0]["half_width"] == pytest.approx(T_1 * 0.1)
    assert (rows[1.0, 0.0]["n"], rows[1.0, 0.0]["lowest"], rows[1.0, 0.0]["highest"]) == (2, 0.8, 1.0)
    assert (rows[1.0, 0.0]["answer_tokens"], rows[1.0, 0.0]["chance"]) == (5, pytest.approx(1e-5))
    _, sheet = section.sheets["retrieval_arms"]
    # Over both depths: 1 and 0.9, then 0 and 0.2.
    assert [row["exact_share_mean"] for row in sheet] == pytest.approx([0.95, 0.1])
    assert sheet[0]["exact_share_half_width"] == pytest.approx(T_1 * 0.05)
    assert sheet[0]["nats_per_token_mean"] == pytest.approx(1.5)
    assert sheet[0]["token_share_mean"] == pytest.approx(0.95)
    (table,) = section.tables
    assert [cell.text for cell in table.rows[0]][:3] == ["Pass-key", "rope", "95.0 ± 63.5"]
    assert "rope (95.0 and 10.0)" in section.findings[0]
    assert len(section.findings) == 2


def test_untested_lengths_are_dashes_and_seeds_without_answers_are_left_out(tmp_path):
    write_scheme(tmp_path, "a", answers({(1.0, 0.0): 10, (4.0, 0.0): 2}))
    write_scheme(tmp_path, "b", answers({(1.0, 0.0): 9}), pos="learned", sliding={1.0: 2.0}, max_length=L)
    section = retrieval(tmp_path)
    by_arm = {row[1].text: [cell.text for cell in row[2:]] for row in section.tables[0].rows}
    assert by_arm["learned"] == ["90.0", "–", "1.000", "–"]
    found = {(row["arm"], row["multiple"]) for row in section.charts[0].rows}
    assert found == {("rope", 1.0), ("rope", 4.0), ("learned", 1.0)}
    assert [panel.column_titles for panel in section.charts[0].panels] == [("L", "4 L")] * 2
    assert section.charts[0].high == 1  # a share
    assert "learned (90.0 and not defined) and rope (100.0 and 20.0)" in section.findings[0]
    assert section.findings[-1] == "One seed: no interval, no winner claimed."
    for seed in (1, 2):
        probe = answers({(1.0, 0.0): 10 - seed}) if seed == 1 else None
        write_scheme(tmp_path, f"a{seed}", probe, seed=seed)
    section = retrieval(tmp_path)
    (rope,) = (row for row in section.tables[0].rows if row[1].text == "rope")
    assert rope[2].text.endswith("(n = 2)")


def test_the_findings_name_the_share_at_L_below_which_an_arm_tells_nothing(tmp_path):
    nothing = {(1.0, depth / 10): 0 for depth in range(10)} | {(2.0, 0.0): 10}
    write_scheme(tmp_path, "a", answers(nothing))
    write_scheme(tmp_path, "b", answers({(1.0, 0.0): 1, (2.0, 0.0): 0}), pos="alibi")
    write_scheme(tmp_path, "c", answers({(2.0, 0.0): 10}, "copy"), pos="t5")
    passkey, copy, *_ = retrieval(tmp_path).findings
    assert "alibi (10.0 and 0.0) and rope (0.0 and 100.0). An arm with less than 5 % at L has not" in passkey
    assert copy.startswith("Copy, percent exact at L and at 2 L: t5 (not defined and 100.0)")
