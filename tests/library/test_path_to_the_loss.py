"""How much of the code lies between a call of `poslab.train` and the loss, for whoever reads it."""

import json
import subprocess
import sys
from pathlib import Path

from support.commands import ROOT, environment

# More than this is not let in. What is aimed at: 15 files and 2,400 lines, none over 400.
FILES, LINES, LONGEST = 39, 6_700, 400

SCRIPT = """
import json, sys
from pathlib import Path

import poslab
from support.runs import request

poslab.train(request(seed=1), "first")  # what is read once a process
wanted, root = request(), str(Path(poslab.__file__).parent)
entered = []

class Reached(Exception):
    pass

def look(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name == "cross_entropy":
        sys.setprofile(None)
        raise Reached
    if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
        entered.append(code.co_filename)

sys.setprofile(look)
try:
    poslab.train(wanted, "second")
except Reached:
    print(json.dumps(sorted(set(entered))))
"""


def test_the_path_from_train_to_the_loss_does_not_grow(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    variables["PYTHONPATH"] = str(ROOT / "tests")
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = {path: Path(path).read_text().count("\n") for path in json.loads(ended.stdout.splitlines()[-1])}
    counts = f"{len(lines)} files, {sum(lines.values())} lines, the longest {max(lines.values())}"
    print(counts)
    assert len(lines) <= FILES, counts
    assert sum(lines.values()) <= LINES, counts
    assert max(lines.values()) <= LONGEST, counts
