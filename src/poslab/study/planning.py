"""Plan the runs of a command: check every request, prepare the texts, and refuse runs that cannot work."""

from collections.abc import Sequence
from pathlib import Path

from poslab.config.request import Request
from poslab.config.schema import ConfigError, PairError
from poslab.study.launch.contract import Launcher, LauncherOptions, launcher_class
from poslab.study.launch.machine import Memory
from poslab.study.run.branches import check_branches
from poslab.study.run.budget import BudgetError, check_fits
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.preparation import Preparation
from poslab.study.run.refusals import forget_refusal, record_refusal

Refused = list[tuple[Request, PairError | BudgetError]]


def launcher_of(requests: Sequence[Request]) -> tuple[type[Launcher], LauncherOptions]:
    """Return the launcher of a command and its options. Raise ConfigError if requests differ in it."""
    if any(request.config.launcher != requests[0].config.launcher for request in requests):
        raise ConfigError("launcher: a study has only one, it cannot be swept; run a command for each")
    return launcher_class(requests[0].config.launcher)


def plan_all(
    requests: Sequence[Request], runs: Path, launcher: type[Launcher]
) -> tuple[list[Job], dict[Path, str]]:
    """Check all requests before any run starts, record the refused ones, and remove earlier refusals.

    Return the runs that can work, and a line with the reason for each that cannot, by directory. Raise the
    errors of `plan_requests`.
    """
    local = launcher.on_this_machine(launcher_of(requests)[1])
    jobs, refused = plan_requests(requests, runs, local)
    for job in jobs:  # before trials choose a learning rate, which makes it another request
        forget_refusal(job.request, runs)
    return jobs, {
        record_refusal(request, runs, error, local): f"{request.title}: {error}" for request, error in refused
    }


def plan_requests(
    requests: Sequence[Request], runs: Path, local: bool, gpu: Memory | None = None
) -> tuple[list[Job], Refused]:
    """Return the runs that can work and the requests that cannot; a run requested twice is one job.

    `local` is whether the runs are for this machine. With `gpu`, a run must fit into a GPU of this memory,
    which need not exist. A request is refused if its scheme and attention do not fit together, or if the run
    exceeds the memory; the others are still planned. Raise ConfigError if a setting is wrong, and PairError
    or BudgetError only if every request is refused.
    """
    jobs: dict[tuple[str, str], Job] = {}  # by study and identity, since one run may have several labels
    refused: Refused = []
    preparation = Preparation()
    for request in requests:
        try:
            job = plan(request, runs, local, preparation)
            if gpu is not None:
                check_fits(job.size, gpu)
            first = jobs.setdefault((job.config.study, job.identity), job)
            if first.config.logger != job.config.logger:
                raise ConfigError("a run is requested with two loggers: to use both, set logger=[NAME,NAME]")
        except (PairError, BudgetError) as error:
            refused.append((request, error))
        except ConfigError as error:
            if len(requests) == 1:
                raise
            raise ConfigError(f"{request.pos} / {request.attention}: {error}") from None
    if not jobs:
        raise refused[0][1]
    check_branches(list(jobs.values()))
    return list(jobs.values()), refused
