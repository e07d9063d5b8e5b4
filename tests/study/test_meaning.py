"""Which parts of a source affect the identity of runs, and which are only words."""

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


def turn(x: float, theta: float = 1.0) -> float:
    """Turn x."""
    angle: float = theta  # radians
    return x * angle
'''


WORDS = [
    ('"""A module."""', '"""Another text."""'),
    ('    """The options."""\n\n', ""),
    ('"""Turn x."""', '"""Rotate x by theta."""'),
    ("of the geometric series", "b of the paper"),
    (", description=", ', title="Base", description='),
    ("x: float, theta: float = 1.0) -> float", "x, theta=1.0)"),
    ("angle: float = theta  # radians", "angle = theta"),
    ("x * angle", "(x\n        * angle)"),
    ("    from somewhere import Something", "    from elsewhere import Something"),
]
COMPUTED = [
    ("gt=0", "ge=0"),
    ("base: float", "base: int"),  # pydantic accepts other values
    ("x * angle", "x + angle"),
    ("theta: float = 1.0", "theta: float = 2.0"),
    ("from pydantic", "from elsewhere"),
    ("return x * angle", '"a docstring is the first statement only"\n    return x'),
]


@pytest.mark.parametrize(("old", "new"), [*WORDS, *COMPUTED])
def test_computations_affect_the_identity_and_words_and_layout_do_not(old, new):
    assert old in SOURCE
    assert (meaning(SOURCE.replace(old, new)) == meaning(SOURCE)) == ((old, new) in WORDS)


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


def test_only_the_code_of_a_measurements_rows_affects_the_identity():
    for old, new in (('"mine"', '"yours"'), ("def section(self, study)", "def answer(self, study)")):
        assert meaning(MEASUREMENT.replace(old, new)) == meaning(MEASUREMENT), old
    for old, new in (('"value"', '"other"'), ("TABLE", "OTHER"), ('"shown", 3', '"shown", 4')):
        assert meaning(MEASUREMENT.replace(old, new)) != meaning(MEASUREMENT), old
    rows = "    def measure(self, trained):\n        return rows(trained, COUNT)\n"
    assert meaning(MEASUREMENT.replace(rows, "")) == ""  # it only adds figures


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


@pytest.mark.parametrize("part", ["fast", "return 3", ".more", "= 1", "=2", "+ 4"])
def test_anything_that_a_measurement_uses_of_its_module_counts(part):
    changed = HELPED.replace(part, f"{part[:-1]}5" if part[-1].isdigit() else ".other")
    assert meaning(changed) != meaning(HELPED)
    assert {"fast", ".more"} <= {*imports(HELPED)}
