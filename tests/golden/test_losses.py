"""Every arm trains to the losses that are stored: what a rewriting of the code must not change.

The stored ones are right only as far as other tests say that the formulas are. Where a change is meant to
change them, `PYTHONPATH=tests python -m support.golden > tests/golden/losses.csv` writes them again.
"""

import itertools

import pytest

from support.golden import Name, losses, names, stored

# Of float32 on one thread: the instruction sets AVX-512, AVX2 and SSE differ by up to FIXME.
TOLERANCE = 1e-6
STORED = stored()


def test_every_arm_has_stored_losses() -> None:
    assert list(STORED) == names()


@pytest.mark.parametrize("name", STORED, ids=lambda name: "-".join(filter(None, name)))
def test_an_arm_trains_to_the_stored_losses(name: Name) -> None:
    assert losses(name) == pytest.approx(STORED[name], rel=TOLERANCE)
