"""The order of the tests, and fixtures for all: no network, no account, no cache of the user."""

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

# Otherwise waiting threads of runs that share the cores would spin. PyTorch reads it when imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch

pytest.register_assert_rewrite("support")
torch.set_num_threads(1)  # two processes of tests share the cores


def pytest_configure() -> None:
    gc.set_threshold(20_000, 20, 20)  # the default frequency of garbage collection takes a tenth of a report


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m gpu`, ignore files without such tests: a machine with a GPU may lack what they import.

    For example W&B, `datasets` and the libraries of browsers and clusters.
    """
    if config.getoption("markexpr") != "gpu" or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return True if not any(word in text for word in ("mark.gpu", "support.devices")) else None


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Run files with commands first: they take minutes, so otherwise one process would end much later."""
    items.sort(key=lambda item: "support.commands" not in _sources(item.module))


@functools.cache
def _sources(module: ModuleType) -> set[str]:
    return {getattr(value, "__module__", "") for value in vars(module).values()}


@pytest.fixture(autouse=True)
def _same_numbers() -> Iterator[None]:
    """Fix threads, which change the last bits of sums, and the seed, which depends on earlier tests."""
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_cache_and_no_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's cache, and a test that needs a network fails at once.

    This includes a module's fixtures, which then reuse what planning remembers.
    """
    cache = tmp_path_factory.getbasetemp().parent / "poslab-test-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSLAB_CACHE", str(cache))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("WANDB_API_KEY", raising=False)
        patch.setenv("WANDB_MODE", "offline")
        yield


@pytest.fixture(scope="session", autouse=True)
def _undrawn() -> Iterator[None]:
    """Replace each paper figure by a pixel, since drawing takes most of a report's time."""
    from support.forks import undrawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poslab.report.render.paper.draw_all", undrawn)
        yield


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the transformers library compute in float64, also where it forces float32."""
    from support.parity import IN_FLOAT32, TorchInFloat64  # imports the library, which takes seconds

    for module in IN_FLOAT32:
        monkeypatch.setattr(module, "torch", TorchInFloat64())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
