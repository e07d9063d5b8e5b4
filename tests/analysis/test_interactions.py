"""How the difference of two schemes changes with the settings beside them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from poslab.analysis.estimates import ArmFigures
from poslab.analysis.interactions import interactions
from poslab.analysis.statistics import paired
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


def test_the_change_is_the_difference_of_two_differences_by_seed():
    arms = four()
    (found,) = interactions([*arms.values()], arms["rope", "layer"], FIGURE)
    assert (found.arm, found.against) == (arms["alibi", "rms"], arms["rope", "rms"])
    by_seed = {name: item.by_seed(FIGURE) for name, item in arms.items()}
    less = {
        norm: {seed: by_seed["alibi", norm][seed] - by_seed["rope", norm][seed] for seed in range(3)}
        for norm in ("rms", "layer")
    }
    expected = paired(less["rms"], less["layer"])
    assert found.change.mean == pytest.approx(expected.mean)
    assert found.change.half_width == pytest.approx(expected.half_width)
    assert found.with_own.mean == pytest.approx(sum(less["rms"].values()) / 3)
    assert found.with_reference.mean == pytest.approx(sum(less["layer"].values()) / 3)


def test_its_interval_holds_the_documents_where_records_name_them():
    """What is hard for all four arms cancels: the noise of documents is that of the sum of all four."""
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


def test_a_study_without_all_four_arms_has_none():
    arms = four()
    reference = arms["rope", "layer"]
    for missing in [("alibi", "layer"), ("rope", "rms"), ("alibi", "rms")]:
        rest = [item for name, item in arms.items() if name != missing]
        assert interactions(rest, reference, FIGURE) == ()
    assert interactions([*arms.values()], reference, None) == ()


def test_a_study_with_several_rates_for_one_arm_has_none():
    """A difference of two of its arms can be one of rates."""
    arms = four()
    twice = under("alibi", "rms", np.ones((3, len(ONE_EACH))), rate=9.0)
    assert interactions([*arms.values(), twice], arms["rope", "layer"], FIGURE) == ()
