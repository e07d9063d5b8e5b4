"""A separate cache for each test, and twenty short documents."""

import pytest

from support.texts import options, write_documents


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def novels(tmp_path):
    return write_documents(tmp_path / "novels", 20)


@pytest.fixture
def data(novels):
    """The section `data` of a configuration that reads the documents."""
    return options("text", path=str(novels))
