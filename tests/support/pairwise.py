"""Cases that contain every allowed pair of values, instead of all combinations."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(names: str, *axes: Iterable[Any], **options: Any) -> pytest.MarkDecorator:
    """Parametrize `names` by `all_pairs`; `options` as in `pytest.mark.parametrize`."""
    return pytest.mark.parametrize(names.split(", "), all_pairs(*axes), **options)


def all_pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations of a value of each axis, so few that any two values of two axes still meet.

    A value that is a tuple, such as a scheme and an attention that work together, stays whole and counts as
    its parts: each such tuple is in a case, and each part meets all values of the other axes.
    """
    every = [tuple(part for value in each for part in _parts(value)) for each in product(*axes)]
    pairs = [set(combinations(enumerate(case), 2)) for case in every]
    chosen: list[tuple[Any, ...]] = []
    seen: set[Any] = set()
    for least in range(len(pairs[0]), 0, -1):  # first the cases with many new pairs
        for case, met in zip(every, pairs, strict=True):
            if len(met - seen) >= least:
                chosen.append(case)
                seen |= met
    return chosen


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
