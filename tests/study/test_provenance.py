"""The checkout and the machine of a run in its record."""

import os
import subprocess
from pathlib import Path

import pytest

from poslab.study.run.facts import source_state
from support.runs import make, request


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit and the address of a repository."""
    (tmp_path / "src" / "poslab").mkdir(parents=True)
    (tmp_path / "src" / "poslab" / "__init__.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", "https://someone:password@example.org/poslab.git")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_the_commit_and_whether_the_code_differs_from_it(checkout, tmp_path_factory, monkeypatch):
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("other")))  # of another repository
    assert source_state(checkout).as_json() == {"commit": commit, "modified": False}
    (checkout / "notes.txt").write_text("beside the code")
    assert source_state(checkout).modified is False
    (checkout / "src" / "poslab" / "new.py").write_text("")
    assert source_state(checkout).as_json() == {"commit": commit, "modified": True}


def test_without_a_checkout_commit_or_git_there_is_none(checkout, tmp_path, monkeypatch):
    assert source_state(tmp_path / "nowhere") is None
    with monkeypatch.context() as patched:
        patched.setenv("PATH", os.devnull)
        assert source_state(checkout) is None
    git(checkout, "update-ref", "-d", "HEAD")
    assert source_state(checkout) is None


def test_a_record_has_both(tmp_path, monkeypatch):
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))
    manifest = make(request(), tmp_path / "runs")
    assert manifest.source == source_state()
    machine = manifest.hardware
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes > 2**20
    assert machine.processor
    assert machine.system == f"{os.uname().sysname} {os.uname().release}"
    assert machine.gpus is None
    assert os.uname().nodename not in manifest.model_dump_json()
