"""How the difference of two schemes changes with another setting."""

import math
from dataclasses import replace

import numpy as np
import pytest

from poslab.analysis.estimates import ArmFigures
from poslab.analysis.interactions import interactions
from support.arms import FIGURE, ONE_EACH, arm


def under(scheme: str, norm: str, losses: np.ndarray, rate: float = 1.0, known: bool = False) -> ArmFigures:
    item = arm(losses, ONE_EACH, f"{scheme} norm={norm}", known)
    settings = {"pos.scheme": scheme, "model.norm": norm, "trainer.learning_rate": rate}
    return replace(item, arm=replace(item.arm, differing=settings))


def four(known: bool = False) -> dict[tuple[str, str], ArmFigures]:
    random = np.random.default_rng(0)
    names = [("rope", "layer"), ("alibi", "layer"), ("rope", "rms"), ("alibi", "rms")]
    hard = random.standard_normal((3, len(ONE_EACH)))
    return {
        name: under(*name, 2 + hard + 0.1 * random.standard_normal(hard.shape), rate=rate, known=known)
        for rate, name in enumerate(names)
    }


def test_the_interval_includes_documents_if_records_name_them():
    """Text that is hard for all four arms cancels: the noise of documents is that of their signed sum."""
    arms = four(known=True)
    (found,) = interactions([*arms.values()], arms["rope", "layer"], FIGURE)
    signs = {("alibi", "rms"): 1, ("rope", "rms"): -1, ("alibi", "layer"): -1, ("rope", "layer"): 1}
    sums = np.zeros(len(ONE_EACH))
    for name, sign in signs.items():
        for run in arms[name].arm.finished:
            losses = np.array([part.nll / part.tokens for part in run.segments["sliding", 8.0].values()])
            sums += sign * (losses - losses.mean()) / len(ONE_EACH) / 3
    assert found.change.documents == len(ONE_EACH)
    assert found.change.text.variance == pytest.approx(math.fsum(sums**2) * 20 / 19)


def test_there_is_none_without_all_four_arms_or_with_several_rates_for_one():
    arms = four()
    reference = arms["rope", "layer"]
    for missing in [("alibi", "layer"), ("rope", "rms"), ("alibi", "rms")]:
        rest = [item for name, item in arms.items() if name != missing]
        assert interactions(rest, reference, FIGURE) == ()
    assert interactions([*arms.values()], reference, None) == ()
    # The difference of two of these arms may come from the learning rate.
    twice = under("alibi", "rms", np.ones((3, len(ONE_EACH))), rate=9.0)
    assert interactions([*arms.values(), twice], reference, FIGURE) == ()
