"""The amount of code between a call of `poslab.train` and the loss, for its readers."""

import sys
from pathlib import Path

import pytest

import poslab
from support.runs import request

# Upper limits: for the whole call, and for its run after planning.
# The aim: 15 files and 2,400 lines, none over 400.
MOST = {"poslab.train": (44, 5_999), "poslab.study.run.execute.run": (28, 3_966)}
LONGEST = 400
ROOT = str(Path(poslab.__file__).parent)


class Reached(Exception):
    pass


def test_the_path_from_train_to_the_loss_does_not_grow(tmp_path):
    poslab.train(request(seed=101), tmp_path / "first")  # read once per process
    wanted = request(seed=102)
    entered, planned = [], []

    def look(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_name == "cross_entropy":
            raise Reached
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            if code.co_filename.endswith("study/run/execute.py") and code.co_name == "run":
                planned.append(len(entered))
            entered.append(code.co_filename)

    try:
        sys.setprofile(look)
        with pytest.raises(Reached):
            poslab.train(wanted, tmp_path / "second")
    finally:
        sys.setprofile(None)
    begun = entered[planned[0] :]
    for (name, (files, lines)), paths in zip(MOST.items(), (set(entered), set(begun)), strict=True):
        lengths = [Path(path).read_text().count("\n") for path in paths]
        counts = f"{name}: {len(paths)} files, {sum(lengths)} lines, the longest {max(lengths)}"
        print(counts)
        assert len(paths) <= files, counts
        assert sum(lengths) <= lines, counts
        assert max(lengths) <= LONGEST, counts
