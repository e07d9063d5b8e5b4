"""How much of the code lies between a call of `poslab.train` and the loss, for whoever reads it."""

import json
from pathlib import Path

from support.commands import ROOT, python

# More than this is not let in: of the whole call, and from where its run, which is planned, begins.
# What is aimed at: 15 files and 2,400 lines, none over 400.
MOST = {"poslab.train": (45, 6_288), "poslab.study.run.execute.run": (29, 4_098)}
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
        if code.co_filename.endswith("study/run/execute.py") and code.co_name == "run":
            planned.append(len(entered))
        entered.append(code.co_filename)

sys.setprofile(look)
try:
    poslab.train(wanted, "second")
except Reached:
    begun = entered[planned[0] :]
    print(json.dumps([sorted(set(entered)), sorted(set(begun))]))
"""


def test_the_path_from_train_to_the_loss_does_not_grow(tmp_path):
    ended = python("-c", SCRIPT, cwd=tmp_path, PYTHONPATH=str(ROOT / "tests"))
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    for (name, (files, lines)), paths in zip(MOST.items(), found, strict=True):
        lengths = [Path(path).read_text().count("\n") for path in paths]
        counts = f"{name}: {len(paths)} files, {sum(lengths)} lines, the longest {max(lengths)}"
        print(counts)
        assert len(paths) <= files, counts
        assert sum(lengths) <= lines, counts
        assert max(lengths) <= LONGEST, counts
