"""Runs on a Slurm cluster: one job per run, submitted through submitit. Jobs continue when the command ends.

The study's folder `.launcher` contains slurm.json (the job of each run), and slurm/ with submitit's files,
Slurm's own output (JOB_RANK_log.err) and the exit status of every process (RUN.JOB.RANK.exit), which Slurm
without accounting forgets minutes after the end of a job. The study's folder, the code and the Python
environment must have the same paths on the nodes as on this machine.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path

from pydantic import Field

from poslab.config.installation import with_extra
from poslab.config.schema import ConfigError
from poslab.config.text import one_line
from poslab.record.files import write_atomic
from poslab.record.locks import TakenError, file_lock
from poslab.study.launch.contract import End, Launcher, LauncherOptions, Task
from poslab.study.launch.slurm_task import ENDED_BY_SIGTERM, SlurmTask, exit_file, slurm_output

POLL_SECONDS = 2.0  # between two requests to Slurm's controller, which all users of a cluster share
TURNS = 100  # how often a run may reach the time limit before submitit gives it up

ENDED = {  # the states of ended jobs, in words; in any other state, processes run or will run
    "BOOT_FAIL": "did not find its nodes started",
    "CANCELLED": "was cancelled",
    "COMPLETED": "ended",
    "DEADLINE": "reached its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted by another job",
    "REVOKED": "was revoked",
    "TIMEOUT": "reached its time limit",
    "": "is no longer in the queue",
}
TRY_AGAIN = (  # temporary errors of sbatch: the user has too many jobs, or the controller is away
    "MaxSubmitJob",
    "Socket timed out",
    "Unable to contact slurm controller",
    "Connection refused",
    "emporarily un",
    "in standby mode",
)


class SlurmOptions(LauncherOptions):
    partition: str | None = Field(min_length=1, description="null: the cluster's default")
    account: str | None = Field(min_length=1, description="null: the cluster's default")
    qos: str | None = Field(min_length=1, description="null: the cluster's default")
    minutes: int = Field(
        ge=3, description="a run's time limit; a run that needs longer resumes in another turn"
    )
    cores_per_run: int = Field(ge=1, description="for each process of a run")
    memory_gb: float | None = Field(gt=0, description="per node; null: the cluster's default")
    setup: list[str] = Field(description="shell commands before each run, such as [module load cuda]")


class Slurm(Launcher):
    options_class = SlurmOptions
    detached = True
    queues = True
    step_seconds = 20.0  # Slurm sends SIGKILL after 30

    @classmethod
    def on_this_machine(cls, options: SlurmOptions) -> bool:
        return False

    @classmethod
    def ranks(cls, world: int) -> Mapping[str, str]:
        variables = os.environ
        if "SLURM_STEP_ID" not in variables or variables.get("SLURM_NTASKS") != str(world):
            raise ConfigError(
                f"trainer.devices x trainer.nodes is {world}, but Slurm's job has "
                f"{variables.get('SLURM_NTASKS', '1')} processes: run the command outside a job, with "
                "launcher=slurm"
            )
        nodes = ["scontrol", "show", "hostnames", variables["SLURM_JOB_NODELIST"]]
        hosts = subprocess.run(nodes, capture_output=True, text=True, check=True).stdout.split()
        return {
            "LOCAL_RANK": variables["SLURM_LOCALID"],
            "NODE_RANK": variables["SLURM_NODEID"],
            "MASTER_ADDR": "127.0.0.1" if len(hosts) == 1 else hosts[0],
            "MASTER_PORT": str(20_000 + int(variables["SLURM_JOB_ID"]) % 20_000),
        }

    def __init__(self, options: SlurmOptions, runs: int) -> None:
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "launcher=slurm needs sbatch, which this machine does not have: "
                "run the command on a machine of the cluster, or choose launcher=local"
            )
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise ConfigError(f"launcher=slurm needs submitit: {with_extra('slurm')}") from None
        self.options = options
        self.started: dict[str, Task] = {}  # by job
        self._polled_at = -POLL_SECONDS  # when the queue was read last
        self._next_try = 0.0  # when a job may be submitted again
        self._refused = ""  # why Slurm accepted no job the last time

    def start(self, task: Task) -> bool:
        """Submit a job for the task, or adopt the job of an earlier command if it has not ended.

        Return False if Slurm accepts no job now. Raise ConfigError if it refuses this one.
        """
        folder = task.study.absolute() / ".launcher"
        if time.monotonic() < self._next_try:
            return False
        try:
            with file_lock(folder / "slurm.lock"):  # two commands must not submit a run twice
                started = self._adopt_or_submit(task, folder)
        except TakenError:
            started = False
        if started:
            self._refused = ""
        else:
            self._next_try = time.monotonic() + POLL_SECONDS
        return started

    def _adopt_or_submit(self, task: Task, folder: Path) -> bool:
        jobs = _jobs(folder / "slurm.json")
        job = jobs.get(task.name)
        if job is not None:
            queue = _queue()
            if queue is None:  # it is unknown whether the job still exists
                self._refused = "Slurm's controller does not answer"
                return False
            state, name = queue.get(job, ("", ""))
            # A new cluster numbers its jobs from one again, so the name must be the run's, too.
            if name == task.name and state == "COMPLETING":  # soon it is known whether it ends or runs again
                return False
            if name == task.name and state not in ENDED:
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
        if not self.started or now < self._polled_at + POLL_SECONDS:
            return []
        self._polled_at = now
        queue = _queue()
        if queue is None:  # the controller does not answer; the jobs may still run
            return []
        states = {job: queue.get(job, ("", ""))[0] for job in self.started}
        return [_end(self.started.pop(job), job, state) for job, state in states.items() if state in ENDED]

    def why_waiting(self, task: Task) -> str:
        return self._refused or super().why_waiting(task)

    def stop(self) -> None:
        # Pending jobs leave the queue; running ones get SIGTERM, and SIGKILL after the cluster's KillWait.
        if self.started:
            slurm_output(["scancel", *self.started])

    def kill(self) -> None:
        # Slurm sends SIGKILL at once only to a step; that of srun is the job's first. A job that is already
        # being stopped gets SIGKILL after KillWait.
        if self.started:
            slurm_output(["scancel", "--signal=KILL", *(f"{job}.0" for job in self.started)])
        self.stop()

    def _submit(self, task: Task, folder: Path) -> str | None:
        """Submit a job and return its id; None if Slurm accepts none now. Raise ConfigError on a refusal."""
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
            wckey=None,  # clusters that enforce keys refuse submitit's default
            additional_parameters={"requeue": True},  # also after a node fails
            # Since 22.05, srun does not take --cpus-per-task from its job. A process that fails must end the
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
        # A command that itself runs in a job must not pass on that job's size, but the user's defaults count.
        defaults = {
            key: value
            for key, value in os.environ.items()
            if key.startswith("SBATCH_") or key == "SLURM_CONF"
        }
        try:
            # Submitit also prints the error that it raises.
            with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):
                os.environ.update(defaults)
                return str(executor.submit(command).job_id)
        except FailedJobError as error:
            reason = one_line(str(error).replace("sbatch: error: ", "")) or "no reason given"
            for path in (*folder.glob("*.pkl"), *folder.glob(".submission_file_*.sh")):
                if not path.is_symlink() and "_submitted" not in path.name and "_result" not in path.name:
                    path.unlink()  # otherwise each try would leave one more
            if any(words in reason for words in TRY_AGAIN):
                self._refused = f"Slurm accepts no more jobs now: {reason}"
                return None
            cpu = "; if nodes have no GPUs, choose trainer.accelerator=cpu" if task.cuda else ""
            raise ConfigError(
                f"Slurm refuses {task.name}: {reason}; see conf/launcher/slurm.yaml{cpu}"
            ) from None


def _end(task: Task, job: str, state: str) -> End:
    """Return how the task of an ended job ended; `state` is empty if Slurm has forgotten the job."""
    folder = task.study.absolute() / ".launcher" / "slurm"
    statuses: list[int | None] = []
    for rank in range(task.nodes * task.devices):
        # The file is opened by name, since network file systems list new files late.
        try:
            statuses.append(int(exit_file(folder, task.name, job, rank).read_text()))
        except (OSError, ValueError):
            statuses.append(None)
    failed = [status for status in statuses if status]
    if not failed and None not in statuses:
        return End(task, 0)
    # A process that was stopped because another one failed does not have the status of the cause.
    causes = [status for status in failed if status not in ENDED_BY_SIGTERM] or failed
    status = causes[0] if causes else None
    if status is not None and state in ("COMPLETED", "FAILED", ""):
        return End(task, status)
    errors = folder / f"{job}_0_log.err"
    where = f"; see {errors}" if status is None and errors.exists() else ""
    # Do not restart a job that was cancelled, or one that ran out of memory, since that would recur.
    restartable = state not in ("CANCELLED", "OUT_OF_MEMORY")
    return End(task, status, f"Slurm job {job} {ENDED[state]}{where}", restartable)


def _jobs(path: Path) -> dict[str, str]:
    """Return the latest job of each run, by the run's name."""
    try:
        jobs = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:  # no result is lost, since the results are in the records
        print(f"poslab: {path} is damaged: the runs in it are submitted again", file=sys.stderr)
        return {}
    return {str(name): str(job) for name, job in jobs.items()} if isinstance(jobs, dict) else {}


def queued(study: Path) -> set[str]:
    """Return a study's runs that have a job in Slurm; all that ever had one, if Slurm does not answer."""
    jobs: dict[str, str] = {}
    with suppress(OSError):
        jobs = _jobs(study / ".launcher" / "slurm.json")
    queue = _queue() if jobs else {}
    if queue is None:
        return set(jobs)
    states = {name: queue.get(job, ("", "")) for name, job in jobs.items()}
    return {name for name, (state, owner) in states.items() if owner == name and state not in ENDED}


def _queue() -> dict[str, tuple[str, str]] | None:
    """Return state and name of this user's jobs by id, recently ended ones included; None if no answer."""
    options = ["--noheader", "--all", "--states=all", "--format=%A|%T|%j"]
    output = slurm_output(["squeue", *options, f"--user={os.getuid()}"])
    if output is None:
        return None
    lines = [line.split("|", 2) for line in output.splitlines() if line.count("|") >= 2]
    return {job: (state, name) for job, state, name in lines}
