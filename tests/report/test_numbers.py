"""Every number of report.md and of the page is in a cell of a CSV beside it, and a wrong one is noticed."""

import json
import random
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from poslab.record.files import read_sealed, write_sealed
from poslab.record.writer import RunRecord
from poslab.report.write import write_report
from support.reading import (
    chart_data,
    chart_faults,
    configuration_faults,
    markdown_pieces,
    page_pieces,
    shown_configuration,
)
from support.records import (
    GOOD,
    HIGH,
    L,
    answers,
    biases,
    bounds,
    length_rows,
    plan,
    position_rows,
    reaches,
    rescaling_config,
    turns,
    write_scheme,
)
from support.tracing import Piece, Sheets, figures_in_order

SEEDS = 5
# The loss at L over rope's, and what each doubling past L adds to it.
ARMS = {
    "rope": (0.0, 0.15), "rope_500": (0.02, 0.12), "t5": (-0.05, 0.02), "alibi": (-0.1, -0.01),
    "kerple_log": (-0.02, 0.0), "fire": (-0.03, 0.1), "learned": (0.1, 0.0),
    "nope": (0.2, 0.3),
}  # fmt: skip
BIASED = ("alibi", "kerple_log")
TURNING = {"rope": 100.0, "rope_500": 57.25}

SEEN = {"report.md": markdown_pieces, "index.html": page_pieces}


def write_study(runs: Path) -> None:
    """Eight arms of five seeds; one run diverged, one failed, nope misses targets, learned ends at L."""
    names = []
    for number, (pos, (shift, slope)) in enumerate(ARMS.items()):
        for seed in range(SEEDS):
            name, noise = f"{pos}-s{seed}", random.Random(f"{pos} {seed}")
            here = shift + random.Random(seed).gauss(0, 0.03) + noise.gauss(0, 0.01)
            sliding = {2.0**i: 2 + slope * i + (noise.gauss(0, 0.005) if i else 0) for i in range(4)}
            lengths = (1.0, 2.0, 8.0)
            ends = {}
            if pos == "learned":
                sliding, lengths, ends = {1.0: 2.0}, (1.0,), {"max_length": L}
            lost = {
                ("fire", 4): ("diverged", "the loss is not finite at step 73"),
                ("t5", 3): ("failed", "out of 16 GiB"),
            }
            if (pos, seed) in lost:
                ends["status"], ends["reason"] = lost[pos, seed]
            cells = {(k, d): noise.randrange(11) for k in lengths for d in (0.0, 0.25, 1.0)}
            directory = write_scheme(
                runs,
                name,
                answers(cells, nats=1 + noise.random()),
                biases([0.5 + noise.random() / 10, 0.25], list(range(40))) if pos in BIASED else None,
                turns([6.25, TURNING[pos], None]) if pos in TURNING else None,
                bounds({1: 0.9, 2: 0.7, 8: 0.3 + noise.random() / 10}) if pos in TURNING else None,
                reaches([[1 + noise.random(), 2.0], [0.5, 3 + noise.random()]]),
                pos=pos,
                seed=seed,
                shift=here,
                sliding=sliding,
                config=rescaling_config("pi", "yarn") if pos == "rope" else rescaling_config(),
                parameters=1000 + 8 * number,
                seconds=100 + 10 * noise.random(),
                versions={"torch": "2.13.0", "python": "3.14"},
                code=f"{17 * number:02d}e4b{number}",
                wandb={"mode": "offline"},
                **ends,
            )  # fmt: skip
            if pos == "rope":
                _rescale(directory, here)
            names.append(name)
    plan(runs, names, "rope")
    commands = {"commands": ["python train.py -m pos=rope,t5 seed=range(5) trainer.max_steps=100"]}
    commands["question"] = "Which of 17 schemes reaches 4096 tokens?"
    path = runs / "made_up" / "study.json"
    write_sealed(path, {**read_sealed(path), **commands})


def _rescale(directory: Path, shift: float) -> None:
    lines = {"pi": (HIGH, 2.5), "yarn": (GOOD, 2.05)}
    lengths = [
        {"rescale": n, **row} for n, (sliding, _) in lines.items() for row in length_rows(sliding, L, shift)
    ]
    positions = [
        {"rescale": n, **row}
        for n, (_, loss) in lines.items()
        for row in position_rows([loss + shift] * 8 * L)
    ]
    RunRecord(directory).write_rescaled(lengths, positions)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("numbers")
    write_study(home / "runs")
    return write_report("made_up", home / "runs", home / "reports").directory


@pytest.fixture(scope="module")
def known(report: Path) -> dict[str, set[Piece]]:
    """What is read of the report as it is: only what is planted is then looked at."""
    return {name: {*pieces(Sheets.read(report), name, (report / name).read_text())} for name in SEEN}


def pieces(sheets: Sheets, name: str, text: str) -> list[Piece]:
    found = list(SEEN[name](sheets, text))
    assert figures_in_order(found)
    return found


def faults(report: Path, name: str, text: str, known: Collection[Piece] = ()) -> list[str]:
    """The numbers of report.md or index.html without a cell; pieces that are `known` are not looked at."""
    sheets = Sheets.read(report)
    for piece in pieces(sheets, name, text):
        if piece not in known:
            sheets.check(piece)
    if name == "index.html":
        sheets.faults.extend(chart_faults(sheets, json.loads(chart_data(text))))
        sheets.faults.extend(configuration_faults(sheets, shown_configuration(text)))
    return sheets.faults


@pytest.mark.parametrize("name", SEEN)
def test_every_number_is_in_a_cell(report: Path, name: str) -> None:
    assert faults(report, name, (report / name).read_text()) == []


NEXT = str.maketrans("0123456789", "1234567890")


def off_by_one(text: str) -> str:
    """Its last number with one more in its last digit."""
    found = re.fullmatch(r"(.*)(\d)(\D*)", text, flags=re.DOTALL)
    assert found is not None
    return found[1] + found[2].translate(NEXT) + found[3]


# Where an arm's number stands: what is before it, and the number.
PLACES = {
    ("report.md", "arms"): r"(## Arms\n.*?\n\| {arm} \|(?:[^|]*\|){{5}} )(\d\.\d+)",
    ("report.md", "verdict"): r"(made\\_up\n.*?{arm} \()(−0\.\d+ ± 0\.\d+)",
    ("report.md", "caption"): r"(the sliding-window loss stays within )(5)",
    ("report.md", "figure"): r"(A line ends where it falls )(12)",
    (
        "index.html",
        "arms",
    ): r'(<section id="arms">.*?</span>{arm}</th>(?:<td.*?</td>){{5}}<td[^>]*>)(\d\.\d+)',
    ("index.html", "verdict"): r'(class="summary">.*?{arm} \()(−0\.\d+ ± 0\.\d+)',
    ("index.html", "caption"): r"(the sliding-window loss stays within )(5)",
    ("index.html", "figure"): r"(A line ends where it falls )(12)",
    ("index.html", "heat"): r'(id="attention_distance">.*?</span>{arm}</cap.*?<td style[^>]*>)(\d\.\d+)',
    ("index.html", "chart"): r'("name":"validation_loss".*?"arm":{number},"mean":\[)(\d\.\d+)',
}


@pytest.mark.parametrize(
    ("name", "where", "swapped"),
    [
        (*place, swapped)
        for place, pattern in PLACES.items()
        for swapped in (False, True)
        if not swapped or "{" in pattern  # words of no arm cannot be another's
    ],
)
def test_a_wrong_number_is_noticed(
    report: Path, known: dict[str, set[Piece]], name: str, where: str, swapped: bool
) -> None:
    text = (report / name).read_text()
    mine, other = (
        re.search(PLACES[name, where].format(arm=arm, number=list(ARMS).index(arm)), text, flags=re.DOTALL)
        for arm in ("alibi", "t5")
    )
    assert mine is not None
    assert other is not None
    wrong = other[2] if swapped else off_by_one(mine[2])
    planted = text[: mine.start(2)] + wrong + text[mine.end(2) :]
    assert faults(report, name, planted, known[name]), f"{wrong} for {mine[2]}"
