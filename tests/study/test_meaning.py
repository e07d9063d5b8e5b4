"""What of a source decides the identity of runs, and what is only words."""

import pytest

from poslab.study.run.meaning import meaning

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
def test_words_and_layout_decide_nothing(old: str, new: str) -> None:
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
def test_what_is_computed_decides(old: str, new: str) -> None:
    assert old in SOURCE
    assert meaning(SOURCE.replace(old, new)) != meaning(SOURCE)
