"""What schemes learn in the default budget: a study compares schemes, not what an optimizer made of them."""

import pytest

from support.commands import read, start


@pytest.mark.study
def test_schemes_learn_what_they_are_meant_to(tmp_path):
    """One seed of each, at nano and 400 steps; about ten minutes on two cores."""
    settings = ["logger=local", "study=budget", "evaluate.longest=2", "evaluate.segments=32"]
    output, report = tmp_path / "printed.txt", tmp_path / "reports" / "budget"
    with start("-m", "pos=t5,none,learned,sinusoidal", *settings, cwd=tmp_path, output=output) as study:
        assert study.wait(3600) == 0, output.read_text()
    arms = {row["arm"]: row for row in read(report / "arms.csv")}
    loss = {pos: float(row["sliding_1x_mean"]) for pos, row in arms.items()}
    # At the learning rate of all weights t5's table never left zero, and t5 was as none.
    assert loss["t5"] < loss["none"] - 0.1
    biases = [float(row["mean"]) for row in read(report / "bias_by_distance.csv") if row["arm"] == "t5"]
    assert max(biases) - min(biases) > 2
    assert loss["learned"] < loss["none"]
    # Where token embeddings were scaled up to them, sinusoidal was 0.2 nats behind none at L.
    assert loss["sinusoidal"] < loss["none"] + 0.05
    assert float(arms["sinusoidal"]["sliding_2x_mean"]) > loss["sinusoidal"] + 0.1
