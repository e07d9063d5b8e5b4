"""How much of the code lies between a call of `poslab.train` and the loss, for whoever reads it."""

import json
import subprocess
import sys
from pathlib import Path

from support.commands import ROOT, environment

# More than this is not let in: of the whole call, and from where its run, which is planned, begins.
# What is aimed at: 15 files and 2,400 lines, none over 400.
MOST = {"poslab.train": (44, 6_019), "poslab.study.run.make.run": (28, 3_989)}
LONGEST = 400

SCRIPT = """
import json, sys
from pathlib import Path

import poslab
from poslab.data import verification
from support.runs import request

verification.SETTLED = 0.0  # the first run's files count as verified at once, as they do after seconds
poslab.train(request(seed=1), "first")  # what is read once a process
wanted, root = request(), str(Path(poslab.__file__).parent)
entered, planned = [], []

class Reached(Exception):
    pass

def look(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name == "cross_entropy":
        sys.setprofile(None)
        raise Reached
    if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
        if code.co_filename.endswith("study/run/make.py") and code.co_name == "run":
            planned.append(len(entered))
        entered.append(code.co_filename)

sys.setprofile(look)
try:
    poslab.train(wanted, "second")
except Reached:
    begun = entered[planned[0] :]
    print(json.dumps([sorted(set(entered)), sorted(set(begun))]))
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
    for (name, (files, lines)), paths in zip(
        MOST.items(), json.loads(ended.stdout.splitlines()[-1]), strict=True
    ):
        lengths = [Path(path).read_text().count("\n") for path in paths]
        counts = f"{name}: {len(paths)} files, {sum(lengths)} lines, the longest {max(lengths)}"
        print(counts)
        assert len(paths) <= files, counts
        assert sum(lengths) <= lines, counts
        assert max(lengths) <= LONGEST, counts
