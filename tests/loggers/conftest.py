"""Fixtures: W&B's list of packages is read once for all tests, and commands are called online."""

from collections.abc import Iterator

import pytest
import wandb


@pytest.fixture(scope="session", autouse=True)
def _packages_listed_once() -> Iterator[None]:
    """Reading the installed packages takes a third of a short run's time."""
    found = list(wandb.util.working_set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wandb.util, "working_set", lambda: found)
        yield


@pytest.fixture
def run_command(server, tmp_path, monkeypatch, capsys):
    """Call a command online in a separate folder with its own cache; its status and output."""
    from support.runs import own_cache
    from support.wandb_server.server import online

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSLAB_CACHE", str(own_cache(tmp_path / "cache")))

    def call(main, *arguments):
        capsys.readouterr()  # of clients that the test itself used
        with online(server):
            status = main(list(arguments))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call
