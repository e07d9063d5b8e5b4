"""A Slurm cluster: a job a run, submitted through submitit. The jobs go on when the command that asked ends.

In the study's folder `.launcher` lie slurm.json (the job of each run), and in slurm/ what submitit keeps,
what Slurm itself printed (JOB_RANK_log.err) and the exit status of every process (RUN.JOB.RANK.exit), since
Slurm without accounting forgets how a job ended minutes after it did. The nodes must see the study's folder,
the code and the Python environment where this machine sees them.
"""

import io
import json
import os
import shutil
import time
from contextlib import redirect_stderr
from pathlib import Path

from pydantic import Field

from poslab.config.schema import ConfigError
from poslab.record.files import write_atomic
from poslab.record.locks import TakenError, holding
from poslab.study.launch.contract import End, Launcher, LauncherOptions, Task
from poslab.study.launch.slurm_task import ASKED_TO_END, SlurmTask, ask, exit_file

POLL = 2.0  # seconds between two questions to Slurm's controller, which every user of a cluster shares
TURNS = 100  # how often a run may reach the time limit before it counts as one that makes no progress

OVER = {  # how a job ended; in every other state it will run, runs, or has processes left
    "BOOT_FAIL": "did not find its nodes started",
    "CANCELLED": "was cancelled",
    "COMPLETED": "ended",
    "DEADLINE": "reached its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "made way for another",
    "REVOKED": "was revoked",
    "TIMEOUT": "reached its time limit",
    "": "is gone from the queue",
}
REFUSED_FOR_NOW = (  # by sbatch: the user has too many jobs, or the controller is away
    "MaxSubmitJob",
    "Socket timed out",
    "Unable to contact slurm controller",
    "Connection refused",
    "emporarily un",
    "in standby mode",
)


class SlurmOptions(LauncherOptions):
    partition: str | None = Field(min_length=1)
    account: str | None = Field(min_length=1)
    qos: str | None = Field(min_length=1)
    minutes: int = Field(
        ge=3, description="a run's time limit; one that needs longer goes on in another turn"
    )
    cores_per_run: int = Field(ge=1, description="for each of a run's processes")
    memory_gb: float | None = Field(gt=0, description="a node; null: what the cluster gives")
    setup: list[str]


class Slurm(Launcher):
    options_class = SlurmOptions
    outlives = True

    @classmethod
    def here(cls, options: SlurmOptions) -> bool:
        return False

    def __init__(self, options: SlurmOptions, runs: int) -> None:
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "launcher=slurm needs sbatch, which this machine does not have: "
                "give the command on a machine of the cluster, or choose launcher=local"
            )
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise ConfigError("launcher=slurm needs submitit: uv run --extra slurm train.py ...") from None
        self.options = options
        self.started: dict[str, Task] = {}  # by job
        self._asked = -POLL  # when Slurm was asked last
        self._next_try = 0.0  # when it may be asked again to take a job

    def start(self, task: Task) -> bool:
        """Hand the task to Slurm, or take on the job that an earlier command made for it, if it is not over.

        False where Slurm takes no job now. Raises ConfigError where it refuses this one.
        """
        folder = task.study.absolute() / ".launcher"
        if time.monotonic() < self._next_try:
            return False
        try:
            with holding(folder / "slurm.lock"):  # two commands must not submit one run twice
                started = self._adopt_or_submit(task, folder)
        except TakenError:
            started = False
        if not started:
            self._next_try = time.monotonic() + POLL
        return started

    def _adopt_or_submit(self, task: Task, folder: Path) -> bool:
        jobs = _jobs(folder / "slurm.json")
        job = jobs.get(task.name)
        if job is not None:
            queue = _queue()
            if queue is None:  # nobody can say whether it is still there
                return False
            state, name = queue.get(job, ("", ""))
            # A cluster that was set up anew counts its jobs from one again: the name must fit too.
            if name == task.name and state == "COMPLETING":  # over, or about to run again: soon it is known
                return False
            if name == task.name and state not in OVER:
                self.started[job] = task
                return True
        job = self._submit(task, folder / "slurm")
        if job is None:
            return False
        write_atomic(folder / "slurm.json", json.dumps({**jobs, task.name: job}, indent=2) + "\n")
        self.started[job] = task
        return True

    def ended(self) -> list[End]:
        now = time.monotonic()
        if not self.started or now < self._asked + POLL:
            return []
        self._asked = now
        queue = _queue()
        if queue is None:  # the controller is away: that says nothing about the jobs
            return []
        states = {job: queue.get(job, ("", ""))[0] for job in self.started}
        return [_end(self.started.pop(job), job, state) for job, state in states.items() if state in OVER]

    def stop(self) -> None:
        # What waits leaves the queue; what runs is sent SIGTERM, and after the cluster's KillWait SIGKILL.
        if self.started:
            ask(["scancel", *self.started])

    def kill(self) -> None:
        # Only to a step does Slurm send SIGKILL at once, and our srun is the job's first. A job that is being
        # stopped already has its KillWait.
        if self.started:
            ask(["scancel", "--signal=KILL", *(f"{job}.0" for job in self.started)])
        self.stop()

    def _submit(self, task: Task, folder: Path) -> str | None:
        """The new job, None where Slurm takes none now. Raises ConfigError where it refuses this one."""
        import submitit
        from submitit.core.utils import FailedJobError

        options = self.options
        executor = submitit.SlurmExecutor(folder, max_num_timeout=TURNS)
        executor.update_parameters(
            job_name=task.name,
            partition=options.partition,
            account=options.account,
            qos=options.qos,
            time=options.minutes,
            nodes=task.nodes,
            ntasks_per_node=task.devices,
            gpus_per_node=task.devices if task.cuda else None,
            cpus_per_task=options.cores_per_run,
            mem=None if options.memory_gb is None else f"{round(options.memory_gb * 1024)}M",
            setup=list(options.setup),
            wckey=None,  # submitit's own is refused where keys are enforced
            additional_parameters={"requeue": True},  # when a node fails too, whatever the cluster's default
            # srun does not take --cpus-per-task from its job (since 22.05). And a process that fails ends the
            # others, which would wait for it.
            srun_args=[f"--cpus-per-task={options.cores_per_run}", "--kill-on-bad-exit=1"],
        )
        command = SlurmTask(
            command=task.command,
            working_directory=task.working_directory.absolute(),
            log=task.log.absolute(),
            folder=folder,
            name=task.name,
            cores=options.cores_per_run,
        )
        # A command that itself runs in a job must not hand that job's size on; the user's defaults stay.
        kept = {
            key: value
            for key, value in os.environ.items()
            if key.startswith("SBATCH_") or key == "SLURM_CONF"
        }
        try:
            # submitit prints what it raises
            with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):
                os.environ.update(kept)
                return str(executor.submit(command).job_id)
        except FailedJobError as error:
            said = " ".join(str(error).replace("sbatch: error: ", "").split()) or "no reason given"
            for left in (*folder.glob("*.pkl"), *folder.glob(".submission_file_*.sh")):
                if not left.is_symlink() and "_submitted" not in left.name and "_result" not in left.name:
                    left.unlink()  # else one more for every try
            if any(words in said for words in REFUSED_FOR_NOW):
                return None
            raise ConfigError(f"Slurm refuses {task.name}: {said}; see conf/launcher/slurm.yaml") from None


def _end(task: Task, job: str, state: str) -> End:
    """How the task ended, its job being over; `state` is empty where Slurm does not know the job any more."""
    folder = task.study.absolute() / ".launcher" / "slurm"
    statuses: list[int | None] = []
    for rank in range(task.nodes * task.devices):
        # Opened by name: on network file systems a listing shows a new file late.
        try:
            statuses.append(int(exit_file(folder, task.name, job, rank).read_text()))
        except (OSError, ValueError):
            statuses.append(None)
    failed = [status for status in statuses if status]
    if not failed and None not in statuses:
        return End(task, 0)
    # A process that was stopped because another one failed says less than that one.
    status = next((status for status in failed if status not in ASKED_TO_END), failed[0] if failed else None)
    if status is not None and state in ("COMPLETED", "FAILED", ""):
        return End(task, status)
    errors = folder / f"{job}_0_log.err"
    where = f"; see {errors}" if status is None and errors.exists() else ""
    again = state != "CANCELLED"  # that was somebody's will
    return End(task, status, f"Slurm job {job} {OVER[state]}{where}", again)


def _jobs(path: Path) -> dict[str, str]:
    """The job that each run had last."""
    try:
        jobs = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # a damaged file costs no result: a run knows whether it is made
        return {}
    return {str(name): str(job) for name, job in jobs.items()} if isinstance(jobs, dict) else {}


def _queue() -> dict[str, tuple[str, str]] | None:
    """State and name of this user's jobs by id, those that ended of late too; None where Slurm is silent."""
    form = ["--noheader", "--all", "--states=all", "--format=%A|%T|%j"]
    answer = ask(["squeue", *form, f"--user={os.getuid()}"])
    if answer is None:
        return None
    lines = [line.split("|", 2) for line in answer.splitlines() if line.count("|") >= 2]
    return {job: (state, name) for job, state, name in lines}
