"""Runs with several budgets that share their steps before the decay: trainer.schedule=wsd, branches=true.

Between warm-up and decay, `wsd` has the same learning rate at every step for every budget (Hägele et al.
2024, arXiv 2405.18392). So a run stores its state before the last step at the full rate, as a file in
<run>/stable-<hash>/, and a longer run of the study that begins later continues from it. The longer run's
weights are, to the bit, those that it would have reached from its own first step. The hash covers all that
decides a run's result, except its budget.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poslab.config.schema import ConfigError, TrainerOptions
from poslab.record.facts import SHARED_STEPS
from poslab.study.run.identity import run_identity
from poslab.study.run.job import Job

FOLDER = "stable-"  # the prefix of the folder's name, before the hash


def check_branches(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if runs with `branches` do not use `wsd`, or if no two of several share steps."""
    branching = [job for job in jobs if job.config.branches and job.config.part == "comparison"]
    for job in branching:
        _check_schedule(job.config.trainer)
    if len(branching) > 1 and len({folder(job) for job in branching}) == len(branching):
        raise ConfigError(
            "branches=true, but no two runs differ only in their budget: choose several trainer.max_steps, "
            "trainer.warmup_steps as a number of steps and not as a share, and for budgets below 100 steps "
            "evaluate.validations as a number"
        )


def folder(job: Job) -> str:
    """Return the name of the folder for shared states, the same for runs that differ only in their budget."""
    trainer = job.config.trainer.model_copy(update={"max_steps": 0})
    config = job.config.model_copy(update={"trainer": trainer})
    return FOLDER + run_identity(config, job.code, job.corpus.fingerprint, job.request.start)


def last_stable_step(trainer: TrainerOptions) -> int:
    """Return the number of steps before the last one at the full rate. Raise ConfigError without `wsd`."""
    _check_schedule(trainer)
    from poslab.training.module import learning_rate_share  # imports Lightning

    share = learning_rate_share(trainer)
    return max((step for step in range(trainer.max_steps) if share(step) == 1.0), default=0)


def _check_schedule(trainer: TrainerOptions) -> None:
    if trainer.schedule != "wsd":
        raise ConfigError(
            f"branches=true, but budgets share no steps under trainer.schedule={trainer.schedule}: choose "
            "trainer.schedule=wsd"
        )


def store_shared_state(job: Job, step: int, content: Mapping[str, Any]) -> None:
    """Write the run's state after `step` steps, the `last_stable_step`, for longer runs."""
    from poslab.training.checkpoints import write_checkpoint  # imports PyTorch, which planning does not need

    name = folder(job)
    write_checkpoint(job.directory / name, step, {**content, "identity": name})


def shared_state(job: Job, note: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the latest state of a run with another budget from which this run can continue, or None."""
    from poslab.training.checkpoints import newest_checkpoint

    name, last = folder(job), last_stable_step(job.config.trainer)
    latest, owner = None, ""
    for path in sorted(job.directory.parent.glob(f"*/{name}")):
        state = newest_checkpoint(path, name, note, last)
        if state is not None and (latest is None or state["global_step"] > latest["global_step"]):
            latest, owner = state, path.parent.name
    if latest is not None:
        note(f"{SHARED_STEPS} {latest['global_step']} are those of {owner}")
    return latest
