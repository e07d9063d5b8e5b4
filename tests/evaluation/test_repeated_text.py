"""Repeated text by distance: compared with plain windows; its intervals."""

import math

import numpy as np
import pandas
import pytest
from scipy.special import stdtrit

from poslab.analysis.results import gather
from poslab.measures.repeated_text import CUE, PASSAGE, RepeatedText, _points, windows
from poslab.report.charts import LineChart
from poslab.report.study_tables import StudyTables
from support.evaluation import plain_losses, trained
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.records import write_run

LENGTH, LONGEST, VOCABULARY = 64, 256, 50
TEXT = np.random.default_rng(0).integers(0, VOCABULARY, 3 * (2 * LONGEST + 1))
DOCUMENTS = np.arange(3)[:, None] * (2 * LONGEST + 1) + np.array([0, 2 * LONGEST + 1])


def test_windows_of_l_have_the_near_distances_and_longer_ones_half_their_length():
    assert windows(128, 512) == [(128, [64, 32]), (256, [128]), (512, [256])]
    assert windows(16, 128) == [(64, [32]), (128, [64])]
    assert windows(128, 100) == []  # positions that end before L


def test_losses_are_those_of_windows_with_and_without_a_copy():
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], context_length=LENGTH)
    settings = {"longest": LONGEST // LENGTH, "segments": 3, "documents": "single"}
    table = pandas.DataFrame(RepeatedText().measure(trained(gpt, LENGTH, TEXT, DOCUMENTS, **settings)))
    assert [*table.distance.unique()] == [32, 64, 128]
    for row in table.itertuples():
        begin, end = DOCUMENTS[row.document]
        text = TEXT[begin:end]  # a segment is a whole document
        passage = text[-PASSAGE:]
        before = text[: len(text) - row.distance]
        with_copy = np.concatenate([before[:-PASSAGE], passage, text[len(text) - row.distance :]])
        for nll, whole in ((row.nll, with_copy), (row.nll_without, text)):
            cut = whole[-row.window - 1 :][None]
            assert nll == pytest.approx(plain_losses(gpt, cut, PASSAGE - CUE).sum())
        assert row.tokens == PASSAGE - CUE


def made_up(random: np.random.Generator, seeds: int = 3, documents: int = 20) -> pandas.DataFrame:
    """Return a table with one distance and a change of -0.2 nats, with noise of seeds, documents and both."""
    of_seed, of_document = random.normal(0, 0.05, (seeds, 1)), random.normal(0, 0.2, documents)
    change = -0.2 + of_seed + of_document + random.normal(0, 0.1, (seeds, documents))
    return pandas.DataFrame(
        [
            {"seed": seed, "document": document, "multiple": 0.5, "tokens": 24}
            | {"nll": 24 * (2 + change[seed, document]), "nll_without": 48.0}
            for seed in range(seeds)
            for document in range(documents)
        ]
    )


def test_the_interval_is_over_seeds_and_documents():
    (point,) = _points(table := made_up(np.random.default_rng(1)))
    change = ((table.nll - table.nll_without) / table.tokens).to_numpy().reshape(3, 20)
    by_seed, by_document = change.mean(axis=1), change.mean(axis=0)
    assert point.mean == pytest.approx(change.mean())
    parts = by_seed.var(ddof=1) / 3, by_document.var(ddof=1) / 20
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 19)
    wide = stdtrit(freedom, 0.975) * math.sqrt(sum(parts))
    assert point.half_width == pytest.approx(max(wide, stdtrit(2, 0.975) * math.sqrt(parts[0])))


def test_the_report_has_a_line_for_each_arm_and_names_those_that_read_the_copy(tmp_path):
    for pos, shift in (("rope", 0.0), ("none", 0.2)):
        for seed in range(3):
            table = made_up(np.random.default_rng(seed), 1, 20).drop(columns="seed")
            table.nll += shift * table.tokens
            rows = [table.assign(multiple=k, distance=int(64 * k), window=64) for k in (0.5, 2.0)]
            rows[1][["nll", "nll_without"]] += 24.0  # one nat per token
            tables = {RepeatedText.table: pandas.concat(rows).to_dict("records")}
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, tables=tables)
    section = RepeatedText().section(StudyTables(gather("made_up", tmp_path, "rope")))
    (chart,), (table_of_arms,) = section.charts, section.tables
    assert isinstance(chart, LineChart)
    drawn = {line.label: [point.x for point in line.points] for line in chart.series}
    assert drawn == {"rope": [0.5, 2.0], "none": [0.5, 2.0]}
    (rope,) = (row for row in table_of_arms.records if row["arm"] == "rope")
    assert rope["0.5x_mean"] == pytest.approx(-0.2, abs=0.15)
    assert "lower for rope" in section.findings[0]
    assert "not shown for none" in section.findings[0]
    floors = [said.partition("(")[2].partition(" nats if copied exactly")[0] for said in section.findings]
    assert floors == ["−2.00", "−3.00"]


def test_runs_without_finite_losses_are_left_out(tmp_path):
    for pos in ("rope", "none"):
        for seed in range(3):
            table = made_up(np.random.default_rng(seed), 1, 20).drop(columns="seed")
            if pos == "none" or seed == 2:
                table.loc[3, ["nll", "nll_without"]] = math.nan
            rows = table.assign(multiple=0.5, distance=32, window=64).to_dict("records")
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, tables={RepeatedText.table: rows})
    section = RepeatedText().section(study := StudyTables(gather("made_up", tmp_path, "rope")))
    assert [(line.label, line.points[0].n) for line in section.charts[0].series] == [("rope", 2)]
    changes = RepeatedText().summarise(study.table(RepeatedText()))["repeated_text_0.5x"]
    assert changes.isna().sum() == 4
