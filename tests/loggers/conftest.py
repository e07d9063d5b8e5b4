"""What W&B's client does for each run, and the tests of this folder once."""

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
