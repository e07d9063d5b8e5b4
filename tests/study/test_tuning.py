"""Learning rates chosen arm by arm, on seeds and text of their own; runs copied from other studies."""

from pathlib import Path

import numpy as np
import pytest

from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.record.files import read_sealed
from poslab.record.manifest import read_manifest
from poslab.record.writer import RunRecord
from poslab.report.analysis.learning_rates import choose
from poslab.study.reuse import copy_from_other_study, recorded_elsewhere
from poslab.study.run.plan import plan
from poslab.study.tuning import trials, tuned
from support.commands import command, rows, tiny
from support.runs import make, request


def wanted(**changes):
    return request(tune__factors=[0.5, 1.0], tune__seeds=[100, 101], **changes)


def test_tuning_text_is_training_text_alone():
    corpus = prepare(request().config.data)
    own = corpus.for_tuning()
    assert np.array_equal(np.concatenate([own.train, own.validation]), corpus.train)
    assert len(own.validation) == len(corpus.train) // 10
    assert own.fingerprint != corpus.fingerprint


def test_a_trial_is_the_run_on_other_text_seeds_and_rates():
    asked = [wanted(seed=seed) for seed in (0, 1)]
    found = trials(asked)
    assert len(found) == 4  # two rates, two seeds; the study's seeds share them
    assert {(each.config.trainer.learning_rate, each.config.seed) for each in found} == {
        (rate, seed) for rate in (5e-3, 1e-2) for seed in (100, 101)
    }
    for each in found:
        assert each.config.part == "tuning"
        for same in ("context_length", "pos", "attention", "data", "model"):
            assert getattr(each.config, same) == getattr(asked[0].config, same)
        steps, rate = each.config.trainer.max_steps, each.config.trainer.learning_rate
        own = asked[0].config.trainer.model_copy(update={"learning_rate": rate})
        assert each.config.trainer == own
        assert steps == 20
    assert trials([request()]) == []


def test_the_best_mean_wins_and_an_edge_is_told():
    assert choose({1.0: [3.0, 3.0], 2.0: [2.0, 3.5], 4.0: [5.0, 5.0]}).rate == 2.0
    assert not choose({1.0: [3.0], 2.0: [2.0], 4.0: [5.0]}).edge
    assert choose({1.0: [3.0], 2.0: [2.0]}).edge
    assert choose({1.0: [3.0, 3.0], 2.0: [2.0, None]}).rate == 1.0  # one seed diverged there
    assert choose({1.0: [None], 2.0: []}) is None


def test_each_arm_gets_the_rate_of_its_own_trials(tmp_path):
    asked = [wanted(seed=0, trainer__max_steps=6, evaluate__validations=2)]
    jobs = [plan(each, tmp_path) for each in trials(asked)]
    for job in jobs:
        assert make(job.request, tmp_path).status == "done"
    ready, without = tuned(asked, jobs)
    assert without == []
    chosen = ready[0].config.trainer.learning_rate
    means = {
        rate: np.mean(
            [
                float(last["validation_nll"]) / float(last["validation_tokens"])
                for job in jobs
                if job.request.config.trainer.learning_rate == rate
                for last in rows(job.directory / "metrics.csv")[-1:]
            ]
        )
        for rate in (5e-3, 1e-2)
    }
    assert chosen == min(means, key=means.get)
    assert ready[0].config.part == "comparison"
    other = wanted(seed=0, model__width=64)  # nobody tried a rate for this arm
    assert [each for each, _ in tuned([other], jobs)[1]] == [other]


def test_a_trial_that_was_lost_decides_nothing(tmp_path):
    """A rate whose process was killed may be the best: the arm waits for it. One that diverged is out."""
    asked = [wanted(seed=0, trainer__max_steps=6, evaluate__validations=2)]
    jobs = [plan(each, tmp_path) for each in trials(asked)]
    for job in jobs[:-1]:
        make(job.request, tmp_path)
    ready, without = tuned(asked, jobs)
    assert ready == []
    assert "run the same command again" in without[0][1]
    last = RunRecord(jobs[-1].directory)
    last.update(**{**read_manifest(jobs[0].directory).as_json(), "files": {}})
    last.end("diverged", "the loss is not a number at step 3")
    ready, without = tuned(asked, jobs)
    assert without == []
    diverged = jobs[-1].request.config.trainer.learning_rate
    assert ready[0].config.trainer.learning_rate != diverged


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tune__factors": [1.0, 2.0]}, "seeds"),
        ({"tune__factors": [1.0], "tune__seeds": [5]}, "nothing to choose"),
        ({"tune__factors": [1.0, 1.0], "tune__seeds": [5]}, "twice"),
        ({"tune__factors": [1.0, 2.0], "tune__seeds": [0]}, "seed=0"),
        ({"part": "tuning", "tune__factors": [1.0, 2.0], "tune__seeds": [5]}, "part=tuning"),
    ],
)
def test_settings_that_would_choose_nothing_are_errors(changes, told):
    with pytest.raises(ConfigError, match=told):
        request(**changes)


def test_the_command_tries_rates_first_and_compares_with_the_best(tmp_path):
    grid = ["tune=learning_rate", "tune.factors=[0.5,1]", "tune.seeds=[100]", "reference=alibi"]
    grid.append("primary=loss_1x")
    ended = command("-m", "pos=alibi", "logger=local", *tiny(), *grid, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    study = tmp_path / "runs" / "ablation"
    made = [read_manifest(path.parent) for path in study.glob("*/manifest.json")]
    assert sorted((each.config["part"], each.seed) for each in made) == [
        ("comparison", 0),
        ("tuning", 100),
        ("tuning", 100),
    ]
    listed = read_sealed(study / "study.json")
    assert (listed["reference"], listed["primary"]) == ("alibi", "loss_1x")
    facts = {row["key"]: row["value"] for row in rows(tmp_path / "reports" / "ablation" / "facts.csv")}
    assert facts["primary"] == "loss_1x"
    wrong = command(*tiny(), "pos=rope", "logger=local", "reference=ropes", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "reference=ropes is no arm of study=ablation; there are alibi" in wrong.stderr


def test_a_run_that_another_study_has_made_is_taken_over(tmp_path: Path):
    made = plan(request("one"), tmp_path)
    make(made.request, tmp_path)
    job = plan(request("two"), tmp_path)
    assert copy_from_other_study(job, recorded_elsewhere([job])) == "one"
    assert job.settled
    assert copy_from_other_study(job, recorded_elsewhere([job])) is None  # it has its own now
    first, second = (read_manifest(each.directory) for each in (made, job))
    assert second == first.updated(study="two", taken_from="one")
    # What is damaged is not taken, nor what a run of other code or settings made.
    with (made.directory / "position.csv").open("a") as file:
        file.write("\n")
    other = plan(request("three"), tmp_path)
    assert copy_from_other_study(other, recorded_elsewhere([other])) == "two"
    for each in (job, other):
        with (each.directory / "checkpoint.pt").open("ab") as file:
            file.write(b"\0")
    job = plan(request("four"), tmp_path)
    assert copy_from_other_study(job, recorded_elsewhere([job])) is None
    job = plan(request("four", seed=1), tmp_path)
    assert copy_from_other_study(job, recorded_elsewhere([job])) is None
