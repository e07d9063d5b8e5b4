"""Arms and the same scheme trained at 8 L: which are compared, on which targets, and with which interval."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from poslab.analysis.longer import controls
from poslab.analysis.results import gather
from poslab.record.schema import EXTRAPOLATION
from poslab.report.sections.answer import sentences
from poslab.report.sections.longer import findings, section
from support.records import BATCH, STEPS, L, write_run

DOCUMENTS, TOKENS = 12, 64


def write(
    runs: Path,
    pos: str,
    seed: int,
    length: int,
    losses: Any,
    text: str = "text",
    fingerprint: str = "",
    window: int | None = None,
    **trainer: Any,
) -> None:
    """Write a run with windows of 8 L only, and a loss in each document; all train on as many tokens."""
    settings = {"max_steps": STEPS, "batch_size": BATCH * 8 * L // length, "learning_rate": 0.002, **trainer}
    data = {"name": text, "fingerprint": fingerprint or text, "vocabulary": 256}
    multiples = {1.0: 2.0} if length == 8 * L else {1.0: 2.0, 8.0: 2.0}
    section = {"source": "package", "name": text, "vocabulary": "bytes"}
    rows = [
        {"protocol": protocol, "multiple": k, "length": int(k * length), "segment": i, "document": i}
        | {"nll": TOKENS * loss, "tokens": TOKENS, "bytes": TOKENS}
        for protocol in ("non_overlapping", "sliding")
        for k in multiples
        for i, loss in enumerate(np.broadcast_to(losses, DOCUMENTS))
    ]
    name = f"{text}-{pos}-{length}-{settings['learning_rate']}-{seed}"
    config = {"context_length": length, "trainer": settings, "data": section}
    window = window or length // 4  # it follows the length
    name += f"-{window}"
    config["pos"] = {"name": pos, "window": window}
    facts = {"config": config, "data": data, "tables": {EXTRAPOLATION: rows}}
    write_run(runs, name, pos, seed, sliding=multiples, **facts)


def test_a_control_is_the_same_scheme_at_the_longer_length_on_as_many_tokens(tmp_path):
    random = np.random.default_rng(0)
    text = random.normal(0, 0.1, DOCUMENTS)
    gained = {}
    for pos, gain in {"rope": 0.3, "none": 0.0}.items():
        for seed in range(3):
            noise = random.normal(0, 0.01, (2, DOCUMENTS)) + random.normal(0, 0.005, (2, 1))
            at_length, longer = 2.0 + noise[0], 2.0 - gain * (1 + text) + noise[1]
            gained[pos, seed] = at_length - longer
            write(tmp_path, pos, seed, L, at_length)
            write(tmp_path, pos, seed, 8 * L, longer)
    write(tmp_path, "alibi", 0, L, text + 2)
    write(tmp_path, "alibi", 0, 8 * L, text + 2, batch_size=2 * BATCH)  # no control: on twice the tokens
    found = controls(results := gather("made_up", tmp_path, f"rope L={L} batch_size=16"))
    assert {(item.arm.arm.pos, item.length) for item in found} == {("rope", 8 * L), ("none", 8 * L)}
    change = np.array([gained["rope", seed] for seed in range(3)])
    seeds, documents = change.mean(axis=1).var(ddof=1) / 3, change.mean(axis=0).var(ddof=1) / DOCUMENTS
    freedom = (seeds + documents) ** 2 / (seeds**2 / 2 + documents**2 / (DOCUMENTS - 1))
    half = stdtrit(freedom, 0.975) * math.sqrt(seeds + documents)
    (gap,) = (item.difference for item in found if item.arm.arm.pos == "rope")
    assert gap.mean == pytest.approx(change.mean())
    assert gap.half_width == pytest.approx(max(half, stdtrit(2, 0.975) * math.sqrt(seeds)), rel=1e-4)
    shown = section(results)
    assert [row["length"] for row in shown.tables[0].records] == [8 * L] * 2
    (sentence,) = shown.findings
    assert sentence.index("rope") < sentence.index("not separated") < sentence.index("none L")
    assert sentence in tuple(sentences(results))  # it is among the first sentences of the page
    longer = next(run for run in results.finished if (run.pos, run.context_length) == ("rope", 8 * L))
    scored = longer.segments["non_overlapping", 1.0]
    scored["0"] = scored["0"]._replace(tokens=TOKENS - 1)  # on other targets, so not compared
    assert {item.arm.arm.pos: item.difference.n for item in controls(results)} == {"rope": 2, "none": 3}


def test_an_arm_with_several_controls_has_none(tmp_path):
    for seed in range(2):
        write(tmp_path, "rope", seed, L, 2.3 + seed / 100)
        write(tmp_path, "rope", seed, 8 * L, 2.2 + seed / 100)
    # With one scheme and its control, the page begins with the gain of the longer training.
    alone = gather("made_up", tmp_path, f"rope L={L}")
    assert tuple(sentences(alone))[:1] == findings(alone) != ()
    write(tmp_path, "rope", 0, 8 * L, 1.9, learning_rate=0.004)
    assert controls(gather("made_up", tmp_path, f"rope L={L} lr 0.002")) == ()


@pytest.mark.parametrize("windows", [{L: (5, 9), 8 * L: (43, 70)}, {L: (8, 16), 8 * L: (8, 16)}])
def test_each_of_two_windows_has_its_own_control(tmp_path, windows):
    """With shares of L, rounded here, or with numbers of tokens; all arms are the same but for the window."""
    for length, sizes in windows.items():
        for size in sizes:
            for seed in range(2):
                write(tmp_path, "rope", seed, length, 2.0 + seed / 100, window=size)
    found = controls(gather("made_up", tmp_path, None))
    pairs = {
        tuple(side.arm.runs[0].config["pos"]["window"] for side in (item.arm, item.longer)) for item in found
    }
    assert pairs == set(zip(*windows.values(), strict=True))


def test_seeds_without_a_finite_loss_are_left_out_and_one_seed_is_not_called_noise(tmp_path):
    for pos, lost in (("rope", (2,)), ("none", (0, 1, 2)), ("t5", ())):
        for seed in range(3):
            loss = 2.0 + seed + (pos == "t5")
            write(tmp_path, pos, seed, L, math.nan if seed in lost else loss)
            if pos != "t5" or seed == 0:
                write(tmp_path, pos, seed, 8 * L, 2.0 + seed)
    results = gather("made_up", tmp_path, f"rope L={L}")
    found = {item.arm.arm.pos: item for item in controls(results)}
    assert found.keys() == {"rope", "t5"}
    assert (found["rope"].difference.n, found["rope"].losses) == (2, (2.5, 2.5))
    assert f"one seed for t5 L={L} (+1.00)" in findings(results)[0]


def test_with_several_texts_it_counts_those_on_which_the_longer_training_gains(tmp_path):
    gains = {"code": {"rope": 0.3, "t5": -0.2}, "talks": {"rope": 0.5, "t5": -0.1}, "docs": {"rope": -0.2}}
    random = np.random.default_rng(0)
    for text, gained in gains.items():
        for pos, gain in gained.items():
            for seed in range(3):
                for length, loss in ((L, 2.3), (8 * L, 2.3 - gain)):
                    write(tmp_path, pos, seed, length, loss + random.normal(0, 0.005, DOCUMENTS), text)
    results = gather("made_up", tmp_path, f"rope L={L}")
    (sentence,) = findings(results)
    assert f"rope L={L} higher on 2 of 3 (the interval excludes 0 on 2) and lower on 1 of 3" in sentence
    assert f"t5 L={L} lower on 2 of 2 (the interval excludes 0 on 2), −0.20 to" in sentence
    assert sentence in tuple(sentences(results))


def test_training_on_another_version_of_the_text_is_no_control(tmp_path):
    for pos in ("rope", "t5"):
        write(tmp_path, pos, 0, L, 2.0)
        write(tmp_path, pos, 0, 8 * L, 1.5, fingerprint="text" if pos == "rope" else "its next version")
    found = controls(gather("made_up", tmp_path, f"rope L={L}"))
    assert [item.arm.arm.pos for item in found] == ["rope"]
