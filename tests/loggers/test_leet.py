"""W&B's dashboard for terminals, `wandb leet`, reads the runs of a study, from one folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poslab.loggers.send.offline import VIEW
from support.runs import make, stop_and_go_on, tracked_request

WANDB = Path(sys.executable).parent / "wandb"


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    """The folder of a study of two runs, made offline, of which one was interrupted."""
    folder = tmp_path_factory.mktemp("leet")
    runs = folder / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("POSLAB_CACHE", str(folder / "cache"))
        make(tracked_request(), runs)
        stop_and_go_on(tracked_request("alibi", trainer__checkpoint_seconds=0.0), runs)
    return runs / "shown" / VIEW


def test_every_run_is_opened_once(view):
    names = sorted(path.name for path in view.parent.glob("[!.]*-seed0-*"))
    shown = sorted(view.iterdir(), key=lambda path: path.name.split("-", 2)[2])
    assert [path.name.split("-", 2)[2] for path in shown] == names
    assert len(names) == 2
    for path in shown:
        told = subprocess.run(
            [str(WANDB), "leet", "inspect", "--summary", "--json", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        run = json.loads(told.stdout)
        assert re.search(r"-(rope|alibi)-", path.name)[1] == run["name"].partition(" ")[0]
        assert run["state"] == "finished"
        assert run["summary"]["loss_4x"]
