"""What schemes learn in the default budget: a study compares schemes, not what an optimizer made of them."""

import pytest

from support.commands import rows, start

pytestmark = pytest.mark.study

SCHEMES = ("t5", "none", "learned", "sinusoidal")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of one seed of each, at nano and 400 steps; about ten minutes on two cores."""
    cwd = tmp_path_factory.mktemp("budget")
    settings = ["logger=local", "study=budget", "evaluate.longest=2", "evaluate.segments=32"]
    output = cwd / "printed.txt"
    with start("-m", f"pos={','.join(SCHEMES)}", *settings, cwd=cwd, output=output) as study:
        assert study.wait(3600) == 0, output.read_text()
    return cwd / "reports" / "budget"


@pytest.fixture(scope="module")
def arms(report):
    return {row["arm"]: row for row in rows(report / "arms.csv")}


def loss(arms, pos, multiple):
    return float(arms[pos][f"sliding_{multiple}x_mean"])


def test_t5_learns_its_bias(arms, report):
    """At the learning rate of all weights its table never left zero, and t5 was as none."""
    assert loss(arms, "t5", 1) < loss(arms, "none", 1) - 0.1
    biases = [float(row["mean"]) for row in rows(report / "bias_by_distance.csv") if row["arm"] == "t5"]
    assert max(biases) - min(biases) > 2


def test_learned_positions_are_worth_something(arms):
    assert loss(arms, "learned", 1) < loss(arms, "none", 1)


def test_sinusoids_drown_nothing_and_do_not_extrapolate(arms):
    """Where token embeddings were scaled up to them, sinusoidal was 0.2 nats behind none at L."""
    assert loss(arms, "sinusoidal", 1) < loss(arms, "none", 1) + 0.05
    assert loss(arms, "sinusoidal", 2) > loss(arms, "sinusoidal", 1) + 0.1
