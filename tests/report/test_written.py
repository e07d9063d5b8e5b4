"""A report that is remembered as written is made anew after any change of what makes it."""

import subprocess
import sys

from poslab.report.written import ROOMS

SCRIPT = """
import sys
from poslab.report import write
from poslab.report.render import latex, markdown, page, paper
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("poslab.")}))
"""


def test_every_room_that_makes_a_report_is_among_its_inputs() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    # Of data, only where the cache lies is read.
    assert set(done.stdout.split()) - {"data"} == set(ROOMS)
