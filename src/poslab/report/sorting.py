"""What a cell of a table sorts by: the number that its text stands for, so that 1.26 M comes after 802 k."""

import math
import re

_NUMBER = r"[+−×]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_LEADING = re.compile(rf"(?P<bound>[<>≥])?\s*(?P<number>{_NUMBER})\s*(?P<unit>[kMGT]|s|min|h|L)?(?![\w/])")
_SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "s": 1.0, "min": 60.0, "h": 3600.0, "L": 1.0}
_SIDES = {"<": -1, "≥": 1, ">": 1}
_IGNORED = str.maketrans("", "", "×,+")
_PART_OF_L = re.compile(r"L(?:/(?P<parts>\d+))?(?!\w)")
_SOME_REACHED = re.compile(r"(?P<hits>\d+) of (?P<n>\d+) reached")
_WORDS = {"< L": 0.0, "> budget": math.inf, "none": math.inf}
_NEARLY_NEVER = 1e300  # past every number, before what was never reached
_BESIDE = 1e-9  # how far a bound lies from the number that it names


def sort_value(text: str) -> float | None:
    """The number that a cell's text stands for, or None where it stands for none.

    A mean counts without its interval, a range by its lower end, a time in seconds. `≥ 8` comes just
    after 8, `< 0.001` just before it; what some runs did not reach comes after every number, what none
    reached last.
    """
    if text in _WORDS:
        return _WORDS[text]
    if some := _SOME_REACHED.fullmatch(text):
        return _NEARLY_NEVER * (2 - int(some["hits"]) / int(some["n"]))
    if part := _PART_OF_L.match(text):
        return 1 / int(part["parts"] or 1)
    found = _LEADING.match(text)
    if found is None:
        return None
    number = float(found["number"].replace("−", "-").translate(_IGNORED))
    value = number * _SCALES.get(found["unit"], 1.0)
    return value + _SIDES.get(found["bound"], 0) * _BESIDE * max(abs(value), 1.0)
