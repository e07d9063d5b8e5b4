"""Every arm trains to the losses that are stored: what a rewriting of the code must not change.

The stored ones are right only as far as other tests say that the formulas are. Where a change is meant to
change them, `PYTHONPATH=tests python -m support.golden > tests/golden/losses.csv` writes them again.
"""

import pytest
import torch

from support.golden import Name, losses, names, stored

# Of float32 on one thread: AVX-512, AVX2 and SSE differ by up to 3e-6 in a loss, by 9e-6 in a norm.
TOLERANCE = 1e-5
TOLERANCE_OF_NORM = 3e-5
STORED = stored()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_arm_has_stored_losses() -> None:
    assert list(STORED) == names()


@pytest.mark.parametrize("name", STORED, ids=lambda name: "-".join(filter(None, name)))
def test_an_arm_trains_to_the_stored_losses(name: Name) -> None:
    found, expected = losses(name), dict(STORED[name])
    assert found.pop("gradient_norm") == pytest.approx(expected.pop("gradient_norm"), rel=TOLERANCE_OF_NORM)
    assert found == pytest.approx(expected, rel=TOLERANCE)
