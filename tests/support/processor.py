"""Marks for tests that need a certain processor; elsewhere they are skipped with the reason."""

import pytest

from poslab.study.launch.devices import cpu_has_bfloat16
from poslab.study.launch.machine import cores

needs_bfloat16 = pytest.mark.skipif(
    not cpu_has_bfloat16(), reason="needs a CPU with instructions for bfloat16, without which it is refused"
)
needs_two_cores = pytest.mark.skipif(len(cores()) < 2, reason="needs two cores")
