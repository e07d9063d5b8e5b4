"""A Slurm cluster: a job per run, submitted through submitit. The jobs continue when the command ends.

The study's folder `.launcher` holds slurm.json (the job of each run), and slurm/ with submitit's files,
Slurm's own output (JOB_RANK_log.err) and the exit status of every process (RUN.JOB.RANK.exit), which Slurm
forgets minutes after a job's end where it has no accounting. The study's folder, the code and the Python
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

POLL_SECONDS = 2.0  # between two requests to Slurm's controller, which every user of a cluster shares
TURNS = 100  # how often a run may reach the time limit before it counts as making no progress

ENDED = {  # the states of jobs that have ended, in words; in any other one processes run or will run
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
QUEUED = ("PENDING", "REQUEUED", "REQUEUE_HOLD")
TRY_AGAIN = (  # errors of sbatch that pass: the user has too many jobs, the controller is away
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
    cores_per_run: int = Field(ge=1, description="for each of a run's processes")
    memory_gb: float | None = Field(gt=0, description="per node; null: what the cluster gives")
    setup: list[str] = Field(description="lines of shell before each run, such as [module load cuda]")


class Slurm(Launcher):
    options_class = SlurmOptions
    detached = True
    queues = True
    step_seconds = 20.0  # of the 30 until Slurm's SIGKILL

    @classmethod
    def on_this_machine(cls, options: SlurmOptions) -> bool:
        return False

    @classmethod
    def ranks(cls, world: int) -> Mapping[str, str]:
        variables = os.environ
        if "SLURM_STEP_ID" not in variables or variables.get("SLURM_NTASKS") != str(world):
            raise ConfigError(
                f"trainer.devices x trainer.nodes is {world}, but Slurm's job has "
                f"{variables.get('SLURM_NTASKS', '1')} processes: run the command outside of a job, with "
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
        self._polled_at = -POLL_SECONDS  # when Slurm was asked last
        self._waiting: list[Task] = []  # the tasks with jobs in the queue then
        self._next_try = 0.0  # when a job may be submitted again
        self._refused = ""  # why Slurm took no job the last time

    def start(self, task: Task) -> bool:
        """Submit a job for the task, or follow the one of an earlier command that has not ended.

        False where Slurm accepts no job now. Raises ConfigError where it refuses this one.
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
            if queue is None:  # it is unknown whether the job is still there
                self._refused = "Slurm's controller does not answer"
                return False
            state, name = queue.get(job, ("", ""))
            # A new cluster numbers its jobs from one again, so the name must be the run's too.
            if name == task.name and state == "COMPLETING":  # it ends, or runs again: known soon
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
        self._waiting = [self.started[job] for job, state in states.items() if state in QUEUED]
        return [_end(self.started.pop(job), job, state) for job, state in states.items() if state in ENDED]

    def requeued(self, task: Task) -> bool:
        return task in self._waiting

    def why_waiting(self, task: Task) -> str:
        return self._refused or super().why_waiting(task)

    def stop(self) -> None:
        # Waiting jobs leave the queue; running ones get SIGTERM, and SIGKILL after the cluster's KillWait.
        if self.started:
            slurm_output(["scancel", *self.started])

    def kill(self) -> None:
        # Slurm sends SIGKILL at once only to a step; srun's is the first of the job. A job that is already
        # being stopped gets SIGKILL after KillWait.
        if self.started:
            slurm_output(["scancel", "--signal=KILL", *(f"{job}.0" for job in self.started)])
        self.stop()

    def _submit(self, task: Task, folder: Path) -> str | None:
        """Return the new job's id; None where Slurm accepts none now. Raises ConfigError on a refusal."""
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
            wckey=None,  # clusters that enforce keys refuse submitit's own
            additional_parameters={"requeue": True},  # after a node fails too
            # Since 22.05 srun does not read --cpus-per-task from its job. A process that fails must end the
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
        # A command that itself runs in a job must not pass that job's size on; the user's defaults count.
        defaults = {
            key: value
            for key, value in os.environ.items()
            if key.startswith("SBATCH_") or key == "SLURM_CONF"
        }
        try:
            # submitit also prints the error that it raises
            with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):
                os.environ.update(defaults)
                return str(executor.submit(command).job_id)
        except FailedJobError as error:
            reason = one_line(str(error).replace("sbatch: error: ", "")) or "no reason given"
            for path in (*folder.glob("*.pkl"), *folder.glob(".submission_file_*.sh")):
                if not path.is_symlink() and "_submitted" not in path.name and "_result" not in path.name:
                    path.unlink()  # or else there is one more after every try
            if any(words in reason for words in TRY_AGAIN):
                self._refused = f"Slurm takes no further job now: {reason}"
                return None
            cpu = "; where nodes have no GPUs choose trainer.accelerator=cpu" if task.cuda else ""
            raise ConfigError(
                f"Slurm refuses {task.name}: {reason}; see conf/launcher/slurm.yaml{cpu}"
            ) from None


def _end(task: Task, job: str, state: str) -> End:
    """Return how the task of an ended job ended; `state` is empty where Slurm has forgotten the job."""
    folder = task.study.absolute() / ".launcher" / "slurm"
    statuses: list[int | None] = []
    for rank in range(task.nodes * task.devices):
        # Opened by name, since on network file systems a new file is listed late.
        try:
            statuses.append(int(exit_file(folder, task.name, job, rank).read_text()))
        except (OSError, ValueError):
            statuses.append(None)
    failed = [status for status in statuses if status]
    if not failed and None not in statuses:
        return End(task, 0)
    # The status of a process that was stopped because another one failed is not the reason.
    telling = [status for status in failed if status not in ENDED_BY_SIGTERM] or failed
    status = telling[0] if telling else None
    if status is not None and state in ("COMPLETED", "FAILED", ""):
        return End(task, status)
    errors = folder / f"{job}_0_log.err"
    where = f"; see {errors}" if status is None and errors.exists() else ""
    # Somebody has cancelled it on purpose; and where memory ran out, it would run out again.
    restartable = state not in ("CANCELLED", "OUT_OF_MEMORY")
    return End(task, status, f"Slurm job {job} {ENDED[state]}{where}", restartable)


def _jobs(path: Path) -> dict[str, str]:
    """Return the last job of each run."""
    try:
        jobs = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:  # no result is lost: the results are in the records
        print(f"poslab: {path} is damaged: the runs of its jobs are submitted again", file=sys.stderr)
        return {}
    return {str(name): str(job) for name, job in jobs.items()} if isinstance(jobs, dict) else {}


def queued(study: Path) -> set[str]:
    """Return a study's runs that have a job in Slurm; where Slurm does not answer, all that ever had one."""
    jobs: dict[str, str] = {}
    with suppress(OSError):
        jobs = _jobs(study / ".launcher" / "slurm.json")
    queue = _queue() if jobs else {}
    if queue is None:
        return set(jobs)
    found = {name: queue.get(job, ("", "")) for name, job in jobs.items()}
    return {name for name, (state, owner) in found.items() if owner == name and state not in ENDED}


def _queue() -> dict[str, tuple[str, str]] | None:
    """Return state and name of this user's jobs by id, recently ended ones too; None without an answer."""
    form = ["--noheader", "--all", "--states=all", "--format=%A|%T|%j"]
    answer = slurm_output(["squeue", *form, f"--user={os.getuid()}"])
    if answer is None:
        return None
    lines = [line.split("|", 2) for line in answer.splitlines() if line.count("|") >= 2]
    return {job: (state, name) for job, state, name in lines}
