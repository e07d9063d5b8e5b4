"""What of a source decides the identity of runs, and what is only words."""

import pytest

from poslab.study.run.meaning import imports, meaning

SOURCE = '''
"""A module."""
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from somewhere import Something


class Options(BaseModel):
    """The options."""

    base: float = Field(gt=0, description="of the geometric series")
    spread: float = 0.02


def turn(x: float, theta: float = 1.0) -> float:
    """Turn x."""
    angle: float = theta  # radians
    return x * angle
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Another text."""'),
        ('    """The options."""\n\n', ""),
        ('"""Turn x."""', '"""Rotate x by theta."""'),
        ("  # radians", ""),
        ("of the geometric series", "b of the paper"),
        (", description=", ', title="Base", description='),
        ("x: float, theta: float = 1.0) -> float", "x, theta=1.0)"),
        ("angle: float = theta", "angle = theta"),
        ("x * angle", "(x\n        * angle)"),
        ("    from somewhere import Something", "    from elsewhere import Something"),
    ],
)
def test_words_and_layout_decide_nothing(old, new):
    assert old in SOURCE
    assert meaning(SOURCE.replace(old, new)) == meaning(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gt=0", "ge=0"),
        ("0.02", "0.03"),
        ("base: float", "base: int"),  # pydantic takes other values
        ("x * angle", "x + angle"),
        ("theta: float = 1.0", "theta: float = 2.0"),
        ("from pydantic", "from elsewhere"),
        ("return x * angle", '"a docstring is the first statement only"\n    return x'),
        ("def turn", "async def turn"),
    ],
)
def test_what_is_computed_decides(old, new):
    assert old in SOURCE
    assert meaning(SOURCE.replace(old, new)) != meaning(SOURCE)


MEASUREMENT = """
from poslab.measures import Measurement
from poslab.report.document import Section

WORDS, COUNT = "shown", 3


class Mine(Measurement):
    table = TABLE

    def measure(self, trained):
        return rows(trained, COUNT)

    def section(self, study):
        return shown(study)


def rows(trained, count):
    return [{"value": count}]


def shown(study):
    return Section("mine", WORDS)
"""


def test_of_a_measurement_only_what_makes_its_rows_decides():
    for old, new in (
        ('"mine"', '"yours"'),
        ("return shown(study)", "return None"),
        ("def section(self, study)", "def sheet(self, study)"),
        ("def section(self, study)", "def answer(self, study)"),
        ("def shown", "def other"),
    ):
        assert meaning(MEASUREMENT.replace(old, new)) == meaning(MEASUREMENT), old
    for old, new in (('"value"', '"other"'), ("TABLE", "OTHER"), ('"shown", 3', '"shown", 4')):
        assert meaning(MEASUREMENT.replace(old, new)) != meaning(MEASUREMENT), old


def test_a_measurement_that_only_adds_figures_decides_nothing():
    before, _, after = MEASUREMENT.partition(
        "    def measure(self, trained):\n        return rows(trained, COUNT)\n"
    )
    assert meaning(before + after) == meaning('"""Nothing."""') == ""


HELPED = """
try:
    from fast import count
except ImportError:
    def count(trained):
        return 3
from .more import *
from poslab.measures import Measurement

KEYS = {}
KEYS["loss"] = 1
KEYS.update(rank=2)


class _Own(Measurement):
    def rows(self, trained):
        return count(trained) + KEYS["loss"]


class Mine(_Own):
    def measure(self, trained):
        return self.rows(trained) + 4
"""


def test_what_a_measurement_gets_from_its_module_in_any_way_decides():
    changes = {
        "fast": "slow",
        "return 3": "return 5",
        ".more": ".other",
        "= 1": "= 5",
        "=2": "=5",
        "+ 4": "+ 5",
    }
    for old, new in changes.items():
        assert old in HELPED
        assert meaning(HELPED.replace(old, new)) != meaning(HELPED), old
    assert {"fast", ".more"} <= {*imports(HELPED)}
