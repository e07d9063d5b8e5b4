"""Arms beside the same scheme trained at 8 L: which are compared, on which targets, and how sure it is."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from poslab.analysis.longer import controls
from poslab.analysis.results import gather
from poslab.record.schema import EXTRAPOLATION
from poslab.report.sections.answer import sentences
from poslab.report.sections.longer import findings, section
from support.records import BATCH, STEPS, L, plan, write_run

DOCUMENTS, TOKENS = 12, 64


def write(
    runs: Path,
    pos: str,
    seed: int,
    length: int,
    losses: np.ndarray,
    batch: int,
    text: str = "text",
    rate: float = 0.002,
) -> str:
    """A run whose only windows are of 8 L tokens, with a loss in each document."""
    trainer = {"max_steps": STEPS, "batch_size": batch, "learning_rate": rate}
    name = f"{text}-{pos}-{length}-{rate}-{seed}"
    data = {"name": text, "fingerprint": text, "vocabulary": 256}
    multiples = {1.0: 2.0} if length == 8 * L else {1.0: 2.0, 8.0: 2.0}
    section = {"source": "package", "name": text, "vocabulary": "bytes"}
    config = {"context_length": length, "trainer": trainer, "data": section}
    rows = [
        {"protocol": protocol, "multiple": k, "length": int(k * length), "segment": i, "document": i}
        | {"nll": TOKENS * loss, "tokens": TOKENS, "bytes": TOKENS}
        for protocol in ("non_overlapping", "sliding")
        for k in multiples
        for i, loss in enumerate(losses)
    ]
    tables = {EXTRAPOLATION: rows}
    write_run(runs, name, pos, seed, sliding=multiples, config=config, data=data, tables=tables)
    return name


def test_a_control_is_the_same_scheme_at_the_longer_length_on_as_many_tokens(tmp_path):
    random = np.random.default_rng(0)
    text = random.normal(0, 0.1, DOCUMENTS)
    gained = {"rope": 0.3, "none": 0.0}
    losses, names = {}, []
    for pos, gain in gained.items():
        for seed in range(3):
            noise = random.normal(0, 0.01, (2, DOCUMENTS)) + random.normal(0, 0.005, (2, 1))
            at_length, longer = 2.0 + noise[0], 2.0 - gain * (1 + text) + noise[1]
            losses[pos, seed] = at_length - longer
            names.append(write(tmp_path, pos, seed, L, at_length, 8 * BATCH))
            names.append(write(tmp_path, pos, seed, 8 * L, longer, BATCH))
    names.append(write(tmp_path, "alibi", 0, L, text + 2, 8 * BATCH))
    names.append(write(tmp_path, "alibi", 0, 8 * L, text + 2, 2 * BATCH))  # on twice the tokens: no control
    plan(tmp_path, names, f"rope L={L}")
    found = controls(results := gather("made_up", tmp_path, None))
    assert [(item.arm.arm.pos, item.length) for item in found] == [("rope", 8 * L), ("none", 8 * L)]
    change = np.array([losses["rope", seed] for seed in range(3)])
    seeds, documents = change.mean(axis=1).var(ddof=1) / 3, change.mean(axis=0).var(ddof=1) / DOCUMENTS
    freedom = (seeds + documents) ** 2 / (seeds**2 / 2 + documents**2 / (DOCUMENTS - 1))
    half = stdtrit(freedom, 0.975) * math.sqrt(seeds + documents)
    gap = found[0].difference
    assert gap.mean == pytest.approx(change.mean())
    assert gap.half_width == pytest.approx(max(half, stdtrit(2, 0.975) * math.sqrt(seeds)), rel=1e-4)
    shown = section(results)
    assert [row["length"] for row in shown.tables[0].records] == [8 * L] * 2
    (sentence,) = shown.findings
    assert sentence.index("rope") < sentence.index("not separated") < sentence.index("none L")
    assert sentence in tuple(sentences(results))  # the page begins with it, beside the tested figure


def test_of_two_rates_each_arm_has_the_control_of_its_own(tmp_path):
    losses = {(L, 0.001): 2.3, (L, 0.004): 2.1, (8 * L, 0.001): 2.2, (8 * L, 0.004): 1.9}
    random = np.random.default_rng(0)
    names = [
        write(tmp_path, "rope", seed, length, loss + random.normal(0, 0.005, DOCUMENTS), batch, rate=rate)
        for (length, rate), loss in losses.items()
        for seed in range(3)
        for batch in [BATCH * 8 * L // length]
    ]
    plan(tmp_path, names, f"rope L={L} lr 0.001")
    found = controls(gather("made_up", tmp_path, None))
    assert [round(item.difference.mean, 2) for item in found] == [0.1, 0.2]


def test_seeds_whose_loss_is_no_number_are_counted_out(tmp_path):
    nothing = np.full(DOCUMENTS, math.nan)
    names = [
        write(tmp_path, pos, seed, length, losses, BATCH * 8 * L // length)
        for pos, lost in (("rope", (2,)), ("none", (0, 1, 2)))
        for seed in range(3)
        for length in (L, 8 * L)
        for losses in [nothing if length == L and seed in lost else np.full(DOCUMENTS, 2.0 + seed)]
    ]
    plan(tmp_path, names, f"rope L={L}")
    (found,) = controls(gather("made_up", tmp_path, None))
    assert (found.arm.arm.pos, found.difference.n, found.losses) == ("rope", 2, (2.5, 2.5))


def test_a_control_of_one_seed_is_not_said_to_be_within_noise(tmp_path):
    names = [
        write(tmp_path, pos, seed, length, np.full(DOCUMENTS, loss + seed / 9), BATCH * 8 * L // length)
        for pos, length, loss, seeds in (("rope", L, 3.0, 3), ("rope", 8 * L, 2.0, 1), ("none", L, 2.0, 3))
        for seed in range(seeds)
    ]
    plan(tmp_path, names, f"rope L={L}")
    (said,) = findings(gather("made_up", tmp_path, None))
    assert f"the loss is of one seed for rope L={L} (+1.00)" in said


def test_a_study_of_one_length_has_no_such_section(tmp_path):
    plan(tmp_path, [write(tmp_path, pos, 0, L, np.ones(DOCUMENTS), BATCH) for pos in ("rope", "none")])
    assert section(gather("made_up", tmp_path, None)) is None


def test_one_scheme_and_its_control_begin_with_what_training_there_gains(tmp_path):
    lengths = ((L, 2.3, 8 * BATCH), (8 * L, 2.0, BATCH))
    names = [
        write(tmp_path, "rope", seed, length, np.linspace(0, 0.01 + seed / 100, DOCUMENTS) + loss, batch)
        for seed in range(3)
        for length, loss, batch in lengths
    ]
    plan(tmp_path, names, f"rope L={L}")
    results = gather("made_up", tmp_path, None)
    assert tuple(sentences(results))[:1] == findings(results) != ()


def test_of_several_texts_it_says_on_how_many_the_longer_training_gains(tmp_path):
    gains = {"code": {"rope": 0.3, "t5": -0.2}, "talks": {"rope": 0.5, "t5": -0.1}, "docs": {"rope": -0.2}}
    random = np.random.default_rng(0)
    names = []
    for text, gained in gains.items():
        for pos, gain in gained.items():
            for seed in range(3):
                for length, loss, batch in ((L, 2.3, 8 * BATCH), (8 * L, 2.3 - gain, BATCH)):
                    losses = loss + random.normal(0, 0.005, DOCUMENTS)
                    names.append(write(tmp_path, pos, seed, length, losses, batch, text))
    plan(tmp_path, names, f"rope L={L}")
    results = gather("made_up", tmp_path, None)
    (said,) = findings(results)
    assert f"rope L={L} higher on 2 of 3 (the interval leaves 0 out on 2) and lower on 1 of 3" in said
    assert f"t5 L={L} lower on 2 of 2 (the interval leaves 0 out on 2), −0.20 to" in said
    assert said in tuple(sentences(results))
