"""How much context a model uses, compared with plain sums over windows, and what a report says."""

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from poslab.analysis.results import Results, gather
from poslab.data.windows import validation_windows
from poslab.evaluation.losses import in_precision
from poslab.measures import context_used as measure
from poslab.measures.context_used import ContextUsed, contexts, ends
from poslab.record.writer import RunRecord
from poslab.report.sections.answer import sentences
from poslab.report.study_tables import StudyTables
from poslab.report.verdict import context_used
from support.evaluation import plain_losses, trained
from support.models import ATTENTIONS, SCHEMES, make_gpt
from support.records import L, plan, seal, write_protocols, write_run

LENGTH = 64


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_same_targets_are_scored_in_every_context(precision, monkeypatch):
    """In the precision of the training."""
    monkeypatch.setattr(measure, "WINDOWS", 5)
    text = np.random.default_rng(0).integers(0, 50, 1000)
    gpt = make_gpt(SCHEMES["rope"], ATTENTIONS["softmax"], context_length=LENGTH, dtype=torch.float32)
    model = trained(gpt, LENGTH, text, np.array([[0, 1000]]))
    model.config.trainer.precision = precision
    windows = validation_windows(model.corpus, 5, LENGTH)
    starts = [
        place
        for place in range(1000 - LENGTH)
        if any(np.array_equal(text[place : place + LENGTH + 1], window) for window in windows)
    ]
    rows = {row["context"]: row for row in ContextUsed().measure(model)}
    assert list(rows) == [2, 4, 8, 16, 32, 64]
    for context, row in rows.items():
        scored = max(1, context // 8)
        places = [place + end for place in starts for end in range(LENGTH - 8 + scored, LENGTH + 1, scored)]
        cut = np.stack([text[place - context : place + 1] for place in places])
        with in_precision(model.config):
            expected = plain_losses(gpt, cut, scored).sum()
        assert row["tokens"] == 5 * 8
        assert row["nll"] == pytest.approx(expected, rel=1e-5 if precision == "float32" else 1e-3)


@pytest.mark.parametrize("length", [128, 64, 48, 100, 7, 1])
def test_every_target_is_scored_once_at_any_length(length):
    for context in contexts(length):
        places = ends(length, context)
        step = max(1, length // 8) // len(places)
        scored = [end - 1 - back for end in places for back in range(step)]
        assert sorted(scored) == list(range(length - max(1, length // 8), length))
        assert step <= context <= length


def test_used_is_the_shortest_context_within_the_tolerance():
    losses = {"a": {32: 2.011, 64: 2.009, 128: 2.0}, "b": {8: 1.0, 16: 1.3, 32: 1.1}}
    rows = [
        {"run": run, "context": context, "nll": 10 * loss, "tokens": 10}
        for run, by_context in losses.items()
        for context, loss in by_context.items()
    ]
    table = pandas.DataFrame(rows)
    assert dict(ContextUsed().summarise(table).context_used) == {"a": 64, "b": 8}


def study(
    runs: Path,
    lost: dict[str, float],
    measured: bool = True,
    short: float = 2.0,
    without: str = "",
) -> Results:
    """Write arms that lose `lost` nats with L/2 instead of L tokens; by their own tables they use 4 tokens.

    The arm `without` has no loss at half of the length.
    """
    names = []
    for pos, more in lost.items():
        for seed in range(5):
            loss = 2.0 + 0.1 * len(pos) + 0.01 * seed + 0.001 * (seed * len(pos) % 3)
            losses = {0.5: loss + more, 1.0: loss, 8.0: loss + 0.01}
            names.append(f"{pos}-{seed}")
            directory = write_protocols(runs, names[-1], losses, losses, pos=pos, seed=seed)
            if measured:
                table = [{"context": c, "nll": 10 * x, "tokens": 10} for c, x in ((4, short), (L, 2.0))]
                RunRecord(directory).write_table(ContextUsed.table, table)
                seal(directory)
    plan(runs, names, "rope")
    if without:
        write_run(runs, f"{without}-0", without, sliding={1.0: 2.0, 8.0: 2.0})
    return gather("made_up", runs, "rope")


FEW = {"rope": 0.001, "alibi": -0.01}
MOST = {"rope": 0.1, "alibi": 0.1}
KEEP = (
    "Of the arms that need a context of L, the loss stays within 5 % of its value at L up to 8 L for 2 of 2:"
)


@pytest.mark.parametrize(
    ("lost", "how", "said", "not_said"),
    [
        (
            FEW,
            {},
            ["No arm is seen to need a context of L:", "a context of 4 tokens is enough"],
            ["stays within"],
        ),
        (FEW, {"short": 2.5}, [], ["is enough"]),
        # By its losses at L/2.
        (FEW, {"measured": False}, ["No arm is seen to need a context of L:"], []),
        # For none it is not known.
        (FEW, {"without": "none"}, ["The arms rope and alibi are not seen to need"], ["stays within"]),
        (MOST | {"none": 0.001}, {}, [KEEP, "The arm none is not seen to need"], []),
        (FEW | {"none": 0.1}, {}, ["Only the arm none is seen to need", " for 1 of 1: the arm none."], []),
    ],
)
def test_only_arms_that_use_their_context_can_keep_their_loss(lost, how, said, not_said, tmp_path):
    text = " ".join(sentences(study(tmp_path, lost, **how)))
    assert [part for part in said if part not in text] == []
    assert [part for part in not_said if part in text] == []


def test_fewer_tokens_are_enough_only_if_each_arm_uses_less_than_its_length(tmp_path):
    for length, used in ((L, L), (8 * L, 4 * L)):
        for seed in range(2):
            rows = [{"context": c, "nll": 10 * x, "tokens": 10} for c, x in ((used, 2.0), (used - 1, 3.0))]
            write_run(
                tmp_path,
                f"rope-{length}-{seed}",
                seed=seed,
                sliding={0.5: 2.0, 1.0: 2.0, 8.0: 2.0},
                config={"context_length": length},
                tables={ContextUsed.table: rows},
            )
    assert "less than 0.02 nats. If" in context_used([gather("made_up", tmp_path, f"rope L={L}")])


def test_the_section_has_the_loss_of_each_arm_with_less_context(tmp_path):
    section = ContextUsed().section(StudyTables(study(tmp_path, {"rope": 0.1, "none": 0.001})))
    (table,) = section.tables
    assert [column.title for column in table.columns] == ["Arm", "Context used", "L/2"]
    assert [row["context_used_mean"] for row in table.records] == [4, 4]
