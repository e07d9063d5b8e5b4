"""The commands as a user types them, on runs of seconds."""

import csv
import io
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from hydra.core.global_hydra import GlobalHydra

from poslab.commands import command_line
from support.forks import UNDRAWN, Forked, forked

ROOT = Path(__file__).parents[2]
TINY = [
    "data=copy",
    "data.tokens=60000",
    "context_length=32",
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "trainer.max_steps=6",
    "trainer.warmup_steps=2",
    "trainer.batch_size=4",
    "evaluate.validations=3",
    "evaluate.validation_windows=2",
    "evaluate.segments=3",
    "evaluate.sliding_windows=8",
    "evaluate.longest=8",
    "trainer.accelerator=cpu",
]


def tiny(**changes: object) -> list[str]:
    """Return TINY with some settings changed or added: `a__b` for a.b."""
    settings = dict(item.split("=", 1) for item in TINY)
    settings |= {key.replace("__", "."): str(value) for key, value in changes.items()}
    return [f"{key}={value}" for key, value in settings.items()]


def environment(cwd: Path) -> dict[str, str]:
    """Return variables without the user's W&B account, with a separate home and separate leases."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    folder = cwd / "tmp"
    folder.mkdir(exist_ok=True)
    own = {"HOME": str(cwd), "NETRC": str(cwd / "no-netrc"), "TMPDIR": str(folder), UNDRAWN: "1"}
    return {**kept, **own}


Ended = subprocess.CompletedProcess[str]


def command(*arguments: str, cwd: Path) -> Ended:
    """Run `train.py`, forked from a process that has imported PyTorch (forks.py), without figures."""
    ended = forked([str(ROOT / "train.py"), *arguments], cwd, environment(cwd), timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended


def called(*arguments: str, cwd: Path, script: str = "train.py", status: int = 0) -> Ended:
    """Run the command in this process, which is faster; `script` may be `poslab`."""
    argv, before = [str(ROOT / script), *arguments], Path.cwd()
    name = script.removesuffix(".py")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        patch.dict(os.environ, environment(cwd), clear=True),
        patch.object(tempfile, "tempdir", None),  # that of the environment, where its devices are leased
        patch.object(sys, "argv", argv),
        patch.object(sys, "path", [*sys.path]),
        patch.object(command_line, "_leave", sys.exit),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as error,
    ):
        try:
            GlobalHydra.instance().clear()  # left by a test that composed a configuration
            os.chdir(cwd)
            command_line.main() if name == "poslab" else command_line.run(name, list(arguments))
        except SystemExit as leaving:
            ended = int(leaving.code or 0)
        finally:
            GlobalHydra.instance().clear()
            os.chdir(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert ended == status, error.getvalue()
    return subprocess.CompletedProcess(argv, ended, out.getvalue(), error.getvalue())


def python(*arguments: str, cwd: Path, status: int = 0, **variables: str) -> Ended:
    """Run `python *arguments` in a fresh process."""
    own = {**environment(cwd), **variables}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == status, ended.stderr
    return ended


def assert_refused(answer: tuple[int, str, str], expected: str) -> None:
    """Check that a command was refused: status 2 and one line on stderr that contains `expected`."""
    status, out, err = answer
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert expected in err


def imported(ended: Ended) -> set[str]:
    """Return the modules imported by a Python that was started with `-X importtime`."""
    return {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}


def start(*arguments: str, cwd: Path, output: Path, temporary: str | None = None) -> Forked:
    """Start `train.py` in a new session, as a terminal does; its output is appended to `output`."""
    own = {} if temporary is None else {"TMPDIR": temporary}
    with output.open("ab") as file:
        words = [str(ROOT / "train.py"), *arguments]
        return Forked(words, cwd, {**environment(cwd), **own}, file, file)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
