"""A cache of its own for each test, and twenty short documents."""

from pathlib import Path

import pytest

from support.texts import write_documents


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def novels(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "novels", 20)
