"""The task of a Slurm job on its nodes: start the command, forward signals, and write the exit status.

launchers/slurm.py submits a SlurmTask through submitit, which stores it in a file that names this module, and
which Slurm starts on each node to load the file and call the task.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from poslab.record.files import write_atomic
from poslab.study.launch.contract import LIFELINE

ANSWER_SECONDS = 30  # that Slurm's controller has to answer
SECONDS_UNTIL_SIGKILL = 60  # near the time limit, of the 90 that submitit gives a process
ENDED_BY_SIGTERM = (128 + signal.SIGTERM, -signal.SIGTERM)  # exit statuses


@dataclass
class SlurmTask:
    """A command as submitit can call it. All paths are absolute, and the same on every node."""

    command: tuple[str, ...]
    working_directory: Path
    log: Path  # of the first process; the others write beside it
    folder: Path  # of the files with the exit statuses
    name: str
    cores: int  # per process
    process: int = 0  # the id of the command's process, once it is started
    stopping: bool = False  # SIGTERM has come
    slurm_signals_child: bool = False  # SIGTERM reaches the command's process from Slurm too

    def __call__(self) -> None:
        rank = int(os.environ["SLURM_PROCID"])
        self._exit_file(rank).unlink(missing_ok=True)  # of an earlier turn of this job
        if rank == 0:  # the other ranks end with the first
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self.slurm_signals_child = _slurm_signals_children()
        log = self.log if rank == 0 else self.log.with_name(f"{self.log.stem}.rank{rank}{self.log.suffix}")
        inherited = {key: value for key, value in os.environ.items() if key != LIFELINE}
        threads = {name: str(self.cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.working_directory,
                env={**inherited, **threads},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=_bound_to(os.getpid()),
            ).pid
        if self.stopping:
            os.kill(self.process, signal.SIGTERM)
        status = _exit_status(self.process)
        assert status is not None
        self._write_status(rank, status)
        # Slurm gets the status too. But a rank that SIGTERM has ended must not end the first one with it,
        # which may be about to put the job back into the queue.
        if rank == 0 or status not in ENDED_BY_SIGTERM:
            raise SystemExit(status if status >= 0 else 128 - status)

    def checkpoint(self) -> Any:
        """Return the task of the job's next turn; submitit calls it in the first task near the time limit."""
        from submitit.helpers import DelayedSubmission

        if self.process:
            if not self.stopping:
                self.stopping = True
                os.kill(self.process, signal.SIGTERM)
            deadline = time.monotonic() + SECONDS_UNTIL_SIGKILL
            while (status := _exit_status(self.process, os.WNOHANG)) is None and time.monotonic() < deadline:
                time.sleep(0.1)
            if status is None:
                os.kill(self.process, signal.SIGKILL)
            elif status not in ENDED_BY_SIGTERM:  # it has just ended or failed
                self._write_status(0, status)
                return None
        return DelayedSubmission(replace(self, process=0, stopping=False))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        first, self.stopping = not self.stopping, True
        # Never twice: at a second SIGTERM a run ends without a checkpoint.
        if self.process and first and not self.slurm_signals_child:
            os.kill(self.process, number)

    def _exit_file(self, rank: int) -> Path:
        return exit_file(self.folder, self.name, os.environ["SLURM_JOB_ID"], rank)

    def _write_status(self, rank: int, status: int) -> None:
        write_atomic(self._exit_file(rank), f"{status}\n")


def exit_file(folder: Path, name: str, job: str, rank: int) -> Path:
    """Return the file with the exit status of process `rank` of the run `name`, negative for a signal."""
    return folder / f"{name}.{job}.{rank}.exit"


def slurm_output(command: Sequence[str]) -> str | None:
    """Return the output of one of Slurm's commands; None where it fails or the controller does not answer."""
    filters = ("SQUEUE_", "SCANCEL_")  # the user's own filters and formats would change the output
    try:
        answer = subprocess.run(
            command,
            env={key: value for key, value in os.environ.items() if not key.startswith(filters)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _slurm_signals_children() -> bool:
    """Return whether Slurm sends SIGTERM to a task's children too; with control groups it does not."""
    configuration = slurm_output(["scontrol", "show", "config"]) or ""
    return "proctrack/linuxproc" in configuration or "proctrack/pgid" in configuration


def _bound_to(parent: int) -> Callable[[], None]:
    """Return a function that makes a new process end with `parent`, and ignore SIGUSR2."""
    set_option = ctypes.CDLL(None).prctl

    def prepare() -> None:
        set_option(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: some clusters miss the children of a dead task
        # Without control groups submitit's signal near the time limit reaches this process too, and would
        # end it.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _exit_status(process: int, options: int = 0) -> int | None:
    """Return the exit status of a child, negative where a signal ended it; with WNOHANG, None while it runs.

    The child stays a zombie, so that its id is not used again and a signal handler may call this too.
    """
    result = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | options)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
