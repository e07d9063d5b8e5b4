"""Commands that tests fork from a process with PyTorch imported are as fresh ones (support/forks.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import environment
from support.forks import forked

PROGRAM = """
import atexit, json, os, sys
atexit.register(print, "at the end")
print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), sys.path[0], __name__, sys.stdout.isatty()]))
print("to stderr", file=sys.stderr)
how = sys.argv[1]
if how == "raises":
    raise ValueError("a reason")
if how == "is killed":
    sys.stdout.flush()
    os.kill(os.getpid(), 9)
sys.exit({"ends": None, "fails": 3, "says why": "a reason"}[how])
"""


@pytest.mark.parametrize("how", ["ends", "fails", "says why", "raises", "is killed"])
def test_a_program_sees_and_shows_the_same(how: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments, seen = [str(program), how], {**environment(tmp_path), "LC_CTYPE": "C.UTF-8"}
    fresh = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=seen, capture_output=True, text=True, check=False
    )
    again = forked(arguments, tmp_path, seen, timeout=60)
    assert (again.returncode, again.stdout) == (fresh.returncode, fresh.stdout)
    assert again.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]
    assert ("Traceback" in again.stderr) == ("Traceback" in fresh.stderr) == (how == "raises")
