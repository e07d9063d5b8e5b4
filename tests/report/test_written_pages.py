"""The cards of schemes, the zoo and the gallery are what code and archived studies give."""

import math
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers
from scipy.stats import ttest_rel

from dev.pages import pages
from dev.pages.archived import AT_4L, AT_8L, AT_L, RULE, pairwise_tests, settings_in
from dev.pages.picture import picture
from dev.pages.shipped import SHIPPED
from dev.pages.zoo import place
from poslab.analysis.results import figures, subject_of
from poslab.record.kept import load_available
from support.commands import ROOT

MODULES = {path.stem for path in (ROOT / "src/poslab/model/positions").glob("[!_]*.py")}
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def written():
    """All pages by their paths: ten seconds, since they rest on the records of every archived study."""
    return pages()


def test_the_pages_are_those_of_the_records(written):
    """`python -m dev.pages` writes them again."""
    again = "run python -m dev.pages"
    assert {f"schemes/{path.name}" for path in (DOCS / "schemes").iterdir()} <= written.keys(), again
    for name, text in written.items():
        if name.endswith(".md"):
            assert (DOCS / name).read_text() == text, f"{name}: {again}"
        else:  # numbers of pictures may differ in their last digit between processors
            assert (DOCS / name).is_file(), f"{name}: {again}"


def test_every_scheme_has_a_card_that_says_what_was_measured_or_that_nothing_was(written):
    for module in MODULES:
        card = written[f"schemes/{module}.md"]
        measured = card.partition("## What poslab measured")[2]
        assert ("Nothing: no archived study has it" in measured) != ("± " in measured or "| 1 |" in measured)
        assert f"({module}.md)" in written["schemes/index.md"]
        assert f"(schemes/{module}.md)" in written["zoo.md"]
        assert f"(schemes/{module}.md)" in (DOCS / "schemes.md").read_text()


def test_pictures_are_small_files_that_a_browser_reads(written):
    pictures = {name: text for name, text in written.items() if name.endswith(".svg")}
    assert "schemes/rope.svg" in pictures
    for text in pictures.values():
        assert len(text) < 8_000
        ElementTree.fromstring(text)


def test_a_bias_and_a_rotation_are_drawn_by_their_formulas():
    alibi = picture("alibi", ["alibi"], [])
    for head, line in enumerate(alibi.lines.values(), 1):
        assert all(value == pytest.approx(-(2.0 ** (-2 * head)) * t, abs=1e-3) for t, value in line)
    for t, value in picture("rope", ["rope"], []).lines["rope"]:
        mean = sum(math.cos(t * 10_000 ** (-pair / 16)) for pair in range(16)) / 16
        assert value == pytest.approx(mean, abs=1e-3)


def test_a_place_is_that_of_paired_tests_with_holms_correction():
    records = load_available("extrapolation", ROOT / "no runs", ROOT / "reports")
    (setting,) = settings_in(figures(records, subject_of("extrapolation"), None))
    p = {}
    for arm, rival in combinations(setting.arms, 2):
        for figure in (AT_L, AT_4L, AT_8L):
            values, against = arm.by_seed(figure), rival.by_seed(figure)
            if values and against:
                seeds = sorted(values)
                result = ttest_rel([values[seed] for seed in seeds], [against[seed] for seed in seeds])
                p[figure, arm.arm.label, rival.arm.label] = result.pvalue
    separated, left = set(), len(p)
    for figure, label, against in sorted(p, key=p.__getitem__):
        if p[figure, label, against] * left >= RULE:
            break
        separated |= {(figure, label, against), (figure, against, label)}
        left -= 1
    tests = pairwise_tests([setting])
    for figure in (AT_L, AT_8L):
        arms = [arm for arm in setting.arms if figure in arm.figures]
        for arm in arms:
            apart = [rival for rival in arms if (figure, arm.arm.label, rival.arm.label) in separated]
            best = 1 + sum(rival.mean(figure) < arm.mean(figure) for rival in apart)
            worst = len(arms) - sum(rival.mean(figure) > arm.mean(figure) for rival in apart)
            text = place(setting, arm, figure, tests)
            assert text == (f"**{best}**" if best == worst else f"{best}–{worst}"), (figure, arm.arm.label)


def test_who_ships_a_scheme_is_seen_in_the_source_of_the_transformers_library():
    models = Path(transformers.__file__).parent / "models"
    assert SHIPPED.keys() <= MODULES
    for entries in SHIPPED.values():
        for entry in entries:
            assert entry.words in (models / entry.file).read_text(), entry
