"""What W&B's client does for each run, and the tests of this folder once; commands given online."""

from collections.abc import Iterator

import pytest
import wandb


@pytest.fixture(scope="session", autouse=True)
def _packages_listed_once() -> Iterator[None]:
    """To read what is installed here takes a third of a short run's time."""
    found = list(wandb.util.working_set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wandb.util, "working_set", lambda: found)
        yield


@pytest.fixture
def said(server, tmp_path, monkeypatch, capsys):
    """Gives a command online, in a folder and with a cache of its own; its status and what it printed."""
    from support.runs import own_cache
    from support.wandb_server.server import online

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSLAB_CACHE", str(own_cache(tmp_path / "cache")))

    def call(main, *arguments):
        capsys.readouterr()  # of the clients that a test has used itself
        with online(server):
            status = main(list(arguments))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call
