"""Schemes learn within the default budget, so that a study compares schemes and not optimizers."""

import pytest

from support.commands import read, start


@pytest.mark.study
def test_schemes_learn_within_the_default_budget(tmp_path):
    """One seed of each, with model nano and 400 steps; about ten minutes on two cores."""
    settings = ["logger=local", "study=budget", "evaluate.longest=2", "evaluate.segments=32"]
    output, report = tmp_path / "printed.txt", tmp_path / "reports" / "budget"
    with start("-m", "pos=t5,none,learned,sinusoidal", *settings, cwd=tmp_path, output=output) as study:
        assert study.wait(3600) == 0, output.read_text()
    arms = {row["arm"]: row for row in read(report / "arms.csv")}
    loss = {pos: float(row["sliding_1x_mean"]) for pos, row in arms.items()}
    # With the general learning rate t5's table stayed at zero, and t5 equalled none.
    assert loss["t5"] < loss["none"] - 0.1
    biases = [float(row["mean"]) for row in read(report / "bias_by_distance.csv") if row["arm"] == "t5"]
    assert max(biases) - min(biases) > 2
    assert loss["learned"] < loss["none"]
    # With token embeddings scaled up to the sinusoids, sinusoidal was 0.2 nats behind none at L.
    assert loss["sinusoidal"] < loss["none"] + 0.05
    assert float(arms["sinusoidal"]["sliding_2x_mean"]) > loss["sinusoidal"] + 0.1
