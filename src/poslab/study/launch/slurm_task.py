"""What each task of a Slurm job does, on its node: run the command, hand signals on, leave the exit status.

Slurm starts submitit, and submitit loads and calls a SlurmTask; launch/slurm.py submits it.
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

PATIENCE = 30  # seconds that Slurm's controller has to answer
GRACE = 60  # seconds that a process has to end near the time limit, of the 90 that submitit leaves it
ASKED_TO_END = (128 + signal.SIGTERM, -signal.SIGTERM)  # the exit status of a process that did as it was told


@dataclass
class SlurmTask:
    """A command as submitit can call it. All paths are absolute, and the same on every node."""

    command: tuple[str, ...]
    working_directory: Path
    log: Path  # of the first process; the others write beside it
    folder: Path  # where the exit status is left
    name: str
    cores: int  # a process
    process: int = 0  # its id, once there is one
    asked_to_end: bool = False
    child_is_told: bool = False  # by Slurm, whatever we do

    def __call__(self) -> None:
        rank = int(os.environ["SLURM_PROCID"])
        self._exit_file(rank).unlink(missing_ok=True)  # of an earlier turn of this job
        if rank == 0:  # the other processes end with the first
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self.child_is_told = _children_are_told()
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
        if self.asked_to_end:
            os.kill(self.process, signal.SIGTERM)
        status = _exit_status(self.process)
        assert status is not None
        self._leave(rank, status)
        # Slurm is to know how it went too. But a process that was asked to end must not take the first one
        # with it, which may be about to put the job back into the queue.
        if rank == 0 or status not in ASKED_TO_END:
            raise SystemExit(status if status >= 0 else 128 - status)

    def checkpoint(self) -> Any:
        """Called by submitit in the first task near the time limit: what is to run in the job's next turn."""
        from submitit.helpers import DelayedSubmission

        if self.process:
            if not self.asked_to_end:
                self.asked_to_end = True
                os.kill(self.process, signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while (status := _exit_status(self.process, os.WNOHANG)) is None and time.monotonic() < deadline:
                time.sleep(0.1)
            if status is None:
                os.kill(self.process, signal.SIGKILL)
            elif status not in ASKED_TO_END:  # it was through, or failed, in this very moment
                self._leave(0, status)
                return None
        return DelayedSubmission(replace(self, process=0, asked_to_end=False))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        first, self.asked_to_end = not self.asked_to_end, True
        # Never twice: to a run the second SIGTERM says to end without a checkpoint.
        if self.process and first and not self.child_is_told:
            os.kill(self.process, number)

    def _exit_file(self, rank: int) -> Path:
        return exit_file(self.folder, self.name, os.environ["SLURM_JOB_ID"], rank)

    def _leave(self, rank: int, status: int) -> None:
        write_atomic(self._exit_file(rank), f"{status}\n")


def exit_file(folder: Path, name: str, job: str, rank: int) -> Path:
    """Where process `rank` of the run `name` leaves its exit status, negative where a signal killed it."""
    return folder / f"{name}.{job}.{rank}.exit"


def ask(command: Sequence[str]) -> str | None:
    """What one of Slurm's commands prints, None where it fails or the controller does not answer in time."""
    own = ("SQUEUE_", "SCANCEL_")  # the user's own filters and formats are not for us
    try:
        answer = subprocess.run(
            command,
            env={key: value for key, value in os.environ.items() if not key.startswith(own)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _children_are_told() -> bool:
    """Whether Slurm's SIGTERM goes to a task's children too; with control groups, the rule, it does not."""
    configuration = ask(["scontrol", "show", "config"]) or ""
    return "proctrack/linuxproc" in configuration or "proctrack/pgid" in configuration


def _bound_to(parent: int) -> Callable[[], None]:
    """What a new process does before its program: see that it ends with `parent`, and outlives SIGUSR2."""
    set_option = ctypes.CDLL(None).prctl

    def prepare() -> None:
        set_option(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not every cluster finds the children of a dead task
        # Without control groups submitit's signal near the time limit reaches it as well, and would end it.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _exit_status(process: int, options: int = 0) -> int | None:
    """Of a child, negative where a signal killed it; waits, unless WNOHANG is given: None where it runs on.

    The child stays a zombie, so that its id stays its own and a signal's handler can ask too.
    """
    found = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | options)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
