"""Runs with several budgets share their steps before the decay, `branches=true`."""

from pathlib import Path

from poslab.study.clean import remove
from poslab.study.display.run_bar import RunDisplay
from poslab.study.execute import run_study
from poslab.study.run.branches import shared_state
from poslab.study.run.execute import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.runs import inline, make, request, stopped_at, weights_digest

WSD = {"trainer__schedule": "wsd", "trainer__warmup_steps": 2, "branches": True}


def budget(steps: int, study: str = "test", **changes: object):
    return request(study, trainer__max_steps=steps, **{**WSD, **changes})


def steps_trained(wanted, runs: Path) -> list[int]:
    """Run a request; return the steps that this process trained."""
    seen: list[int] = []

    class Watched(RunDisplay):
        def step(self, step, loss, tokens_per_second):
            seen.append(step)

    run(plan(wanted, runs), Watched("watched", quiet=True), Stopper())
    return seen


def weights(wanted, runs: Path) -> str:
    return weights_digest(plan(wanted, runs).directory)


def test_a_longer_run_branches_where_a_shorter_one_began_its_decay(tmp_path):
    runs, alone = tmp_path / "runs", tmp_path / "alone"
    first, longest = budget(10), budget(40)
    assert steps_trained(first, runs) == [*range(1, 11)]
    assert steps_trained(budget(20), runs) == [*range(9, 21)]
    assert steps_trained(longest, runs) == [*range(17, 41)]  # from the run of 20, which shares 16
    make(longest, alone)
    assert weights(longest, runs) == weights(longest, alone)  # after steps of all three
    shorter = plan(first, runs).directory
    assert plan(budget(20), runs).run_status.manifest.notes == [f"steps 1 to 8 are those of {shorter.name}"]
    # A shorter run cannot branch after its own decay has begun, so it starts earlier.
    assert steps_trained(budget(15), runs)[0] == 9
    assert remove(shorter.parent, [shorter]) == ([shorter.name], [])
    assert not shorter.exists()


def test_only_runs_that_differ_in_the_budget_share_steps(tmp_path):
    make(budget(10), tmp_path)

    def found(*study, **changes):
        return shared_state(plan(budget(20, *study, **changes), tmp_path), print)

    assert found()["global_step"] == 8
    for changes in ({"seed": 1}, {"trainer__learning_rate": 5e-3}, {"trainer__warmup_steps": 3}):
        assert found(**changes) is None
    assert found("another") is None
    assert steps_trained(budget(20, branches=False), tmp_path)[0] == 1


def test_a_damaged_state_is_not_used_and_a_stopped_branch_resumes_from_its_own(tmp_path):
    make(budget(10), tmp_path)
    stopped_at(12, budget(20), tmp_path)
    assert steps_trained(budget(20), tmp_path) == [*range(13, 21)]
    (state,) = plan(budget(10), tmp_path).directory.glob("stable-*/*.pt")
    state.write_bytes(state.read_bytes()[:-9])
    (other,) = plan(budget(20), tmp_path).directory.glob("stable-*/*.pt")
    other.unlink()
    assert steps_trained(budget(40), tmp_path)[0] == 1


def test_a_study_shares_steps(tmp_path, capsys):
    wanted = [inline(tmp_path, trainer__max_steps=steps, **WSD) for steps in (10, 20)]
    assert run_study(wanted, "train.py -m") == 0
    assert "steps 1 to 8 are those of" in capsys.readouterr().err
