"""What tests of studies need: their reports without figures, which tests/report draws."""

import pytest


@pytest.fixture(autouse=True)
def _without_figures(undrawn: None) -> None:
    """A report in this process takes a fifth of its time."""
