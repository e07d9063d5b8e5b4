"""The task of a Slurm job on its nodes: start the command, forward signals, and write the exit status.

launchers/slurm.py submits a SlurmTask through submitit, which stores it in a file that refers to this module.
Slurm starts submitit on each node, which loads the file and calls the task.
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

ANSWER_SECONDS = 30  # the time that Slurm's controller has to answer
SECONDS_UNTIL_SIGKILL = 60  # near the time limit; submitit gives a process 90
ENDED_BY_SIGTERM = (128 + signal.SIGTERM, -signal.SIGTERM)  # exit statuses


@dataclass
class SlurmTask:
    """A command that submitit can call. All paths are absolute, and the same on every node."""

    command: tuple[str, ...]
    working_directory: Path
    log: Path  # of the first process; the logs of the others are in the same folder
    folder: Path  # contains the files with the exit statuses
    name: str
    cores: int  # per process
    process: int = 0  # the id of the command's process, once it is started
    stopping: bool = False  # whether SIGTERM was received
    slurm_signals_child: bool = False  # whether Slurm sends SIGTERM to the command's process too

    def __call__(self) -> None:
        rank = int(os.environ["SLURM_PROCID"])
        self._exit_file(rank).unlink(missing_ok=True)  # from an earlier turn of this job
        if rank == 0:  # the other ranks end together with this one
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
        # Report the status to Slurm too. But a rank that SIGTERM has ended must not end the first rank, which
        # may be about to put the job back into the queue.
        if rank == 0 or status not in ENDED_BY_SIGTERM:
            raise SystemExit(status if status >= 0 else 128 - status)

    def checkpoint(self) -> Any:
        """Return the task of the job's next turn. Submitit calls it in the first task near the time limit."""
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
        # Never send it twice, since a run ends without a checkpoint upon a second SIGTERM.
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
    """Return the output of a Slurm command; None if it fails or if the controller does not answer."""
    filters = ("SQUEUE_", "SCANCEL_")  # the user's filters and formats would change the output
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
    """Return whether Slurm sends SIGTERM to a task's children too, which it does without control groups."""
    configuration = slurm_output(["scontrol", "show", "config"]) or ""
    return "proctrack/linuxproc" in configuration or "proctrack/pgid" in configuration


def _bound_to(parent: int) -> Callable[[], None]:
    """Return a function for a new process to call, so that it ends with `parent` and ignores SIGUSR2."""
    set_option = ctypes.CDLL(None).prctl

    def prepare() -> None:
        set_option(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: some clusters miss the children of a dead task
        # Without control groups, submitit's signal near the time limit reaches this process too and would
        # end it.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _exit_status(process: int, options: int = 0) -> int | None:
    """Return the exit status of a child, negative if a signal ended it; with WNOHANG, None while it runs.

    The child remains a zombie, so that its id is not reused and a signal handler may call this too.
    """
    result = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | options)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
