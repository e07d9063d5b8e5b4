"""How much of the code lies between a call of `poslab.train` and the loss, for whoever reads it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import poslab
from support.runs import request

# More than this is not let in. What is aimed at: 15 files and 2,400 lines.
FILES, LINES = 45, 7_450
LONGEST = 430


class _ReachedError(Exception):
    pass


def test_the_path_from_train_to_the_loss_does_not_grow(tmp_path: Path) -> None:
    poslab.train(request(seed=1), tmp_path / "first")  # what is read once a process
    wanted, root = request(), str(Path(poslab.__file__).parent)
    entered: dict[str, int] = {}

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "cross_entropy":
            sys.setprofile(None)
            raise _ReachedError
        if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
            entered.setdefault(code.co_filename, 0)

    sys.setprofile(look)
    try:
        poslab.train(wanted, tmp_path / "second")
    except _ReachedError:
        pass
    finally:
        sys.setprofile(None)
    lines = {path: Path(path).read_text().count("\n") for path in entered}
    counts = f"{len(lines)} files, {sum(lines.values())} lines, the longest {max(lines.values())}"
    print(counts)
    assert len(lines) <= FILES, counts
    assert sum(lines.values()) <= LINES, counts
    assert max(lines.values()) <= LONGEST, counts
