"""What several files here ask for."""

from collections.abc import Iterator

import pytest

from poslab.report.charts import FORMATS
from poslab.report.render import paper


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Reports without their paper figures, which take most of a report's seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "draw_all", lambda charts: [dict.fromkeys(FORMATS, b"") for _ in charts])
        yield
