"""W&B's dashboard for terminals, `wandb leet`, shows the runs of a study, from one folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poslab.loggers.send.offline import VIEW
from support.processes import PATIENCE
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


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux, the terminal of this test, is not installed")
def test_one_command_draws_the_curves_of_both_arms(view, tmp_path):
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    own = {**os.environ, "HOME": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path), "LC_ALL": "C.UTF-8"}

    def tell(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], env=own, capture_output=True, text=True, check=True).stdout

    def pane(*words: str, besides: str = "") -> str:
        """What the terminal shows, once that holds all of `words` and other curves than `besides`."""
        begun = time.monotonic()
        while True:
            shown = tell("capture-pane", "-p")
            if all(word in shown for word in words) and curves(shown) != curves(besides):
                return shown
            assert time.monotonic() - begun < PATIENCE, shown

    place = view.parent.parent.parent
    size = ("-x", "120", "-y", "36")
    opened = [str(WANDB), "leet", str(view.relative_to(place))]
    tell("new-session", "-d", *size, "-c", str(place), *opened)
    try:
        pane("Runs [2 items]", "-alibi-flash", "-rope-flash", "Metrics [1-")
        tell("send-keys", "]", "/", *"n/loss", "Enter")
        one = pane("extrapolation/loss", "validation/loss", "[1-4 of 4 filtered")
        tell("send-keys", "C-a", "y")
        pane("● run-", "extrapolation/loss", "validation/loss", besides=one)
    finally:
        tell("kill-server")


def curves(shown: str) -> str:
    """What is drawn: eight dots a character."""
    return "".join(character for character in shown if "\u2800" <= character <= "\u28ff")
