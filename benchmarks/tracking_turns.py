"""Let two trainings take turns of a few steps: while one runs, all processes of the other are stopped.

So a slow moment of a shared machine affects both equally, and the work of a run's helper processes counts
only in its own turns.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


class Training:
    """A training with command-line settings that is stopped except during its turns."""

    def __init__(self, cwd: Path, settings: Sequence[str], turn: int, known: Mapping[str, str]) -> None:
        """Start the training and stop it before its first turn, which has half the steps of the others."""
        cwd.mkdir()
        read, write = os.pipe()
        self.seconds = os.fdopen(read)
        self.errors = cwd / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(write), str(turn), *settings],
                cwd=cwd,
                env={**os.environ, **known},
                stderr=errors,
                pass_fds=(write,),
            )
        os.close(write)
        self._stand_still()

    def take_turn(self) -> float:
        """Run one turn and return its seconds."""
        for pid in (*self.helpers, self.process.pid):
            os.kill(pid, signal.SIGCONT)
        self._stand_still()
        return float(self.seconds.readline())

    def helpers_processor_seconds(self) -> float:
        """Return the processor seconds of the processes that the training has started."""
        fields = [_stat(pid)[11:13] for pid in self.helpers]
        return sum(int(ticks) for times in fields for ticks in times) / TICKS

    def end(self) -> None:
        for pid in (*self.helpers, self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.seconds.close()

    def _stand_still(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise SystemExit(self.errors.read_text())
        self.helpers = _descendants(self.process.pid)
        for pid in self.helpers:
            os.kill(pid, signal.SIGSTOP)


def _descendants(ancestor: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(path.name)):
            parents[int(path.name)] = int(fields[1])
    family = [ancestor]
    for pid in family:  # the list grows during the loop
        family += [child for child, parent in parents.items() if parent == pid]
    return family[1:]


def _stat(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; an empty list if the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def train(write: int, turn: int, settings: list[str]) -> None:
    """Train, and after every turn write its seconds to `write` and stop this process."""
    import poslab
    from poslab.study.display.run_bar import RunDisplay
    from poslab.study.run.execute import RunExecutor
    from poslab.study.run.plan import plan
    from poslab.study.run.stopping import Stopper

    class InTurns(RunExecutor):
        begun = 0.0

        def started(self) -> None:
            super().started()
            self.wait(0)

        def step(self, step: int, *rest: Any) -> None:
            super().step(step, *rest)
            # Turns end halfway between two rows, so that W&B's work on a row falls within a turn.
            if step % turn == turn // 2:
                self.wait(step)

        def wait(self, step: int) -> None:
            if step:
                os.write(write, f"{time.perf_counter() - self.begun}\n".encode())
            os.kill(os.getpid(), signal.SIGSTOP)
            self.begun = time.perf_counter()

    job = plan(poslab.compose(*settings), Path("runs"))
    with Stopper().installed() as stopper:
        InTurns(job, RunDisplay(job.request.title, quiet=True), stopper).run()


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
