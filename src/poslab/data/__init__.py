"""Text into token windows: sources -> split -> tokens -> windows.

No torch here, so that a bad path or a text too short is told at once.
"""

from poslab.data.cache import cache_directory, prepare
from poslab.data.corpus import Corpus
from poslab.data.windows import check_lengths, extrapolation_segments, training_batch, validation_windows

__all__ = [
    "Corpus",
    "cache_directory",
    "check_lengths",
    "extrapolation_segments",
    "prepare",
    "training_batch",
    "validation_windows",
]
