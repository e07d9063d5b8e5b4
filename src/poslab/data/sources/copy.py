"""A synthetic task that needs distant context: random strings, each repeated once.

    qmxxbwqa|qmxxbwqa
    bwmqaqxb|bwmqaqxb

The first half of a line is random, so no model can predict it. The second half is its copy: each letter is
`span` + 1 tokens earlier. A model that cannot look that far back stays at ln(`symbols`) nats per letter.
"""

import string
from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from poslab.data.sources import TextSource

SEPARATOR, END = b"|", b"\n"
LETTERS = np.frombuffer(string.ascii_letters.encode(), dtype=np.uint8)


class Source(TextSource):
    source: Literal["copy"] = Field(description="the module that makes the text")
    span: int = Field(ge=1, description="letters in a string")
    symbols: int = Field(ge=2, le=len(LETTERS), description="number of different letters")
    tokens: int = Field(ge=20, le=2**33, description="bytes in total; a tenth of them is for validation")
    seed: int = Field(ge=0, lt=2**63, description="the seed of the random letters")

    pinned: ClassVar[bool] = True

    def label(self) -> str:
        return f"copy of {self.span} letters out of {self.symbols}"

    def read(self) -> Iterator[bytes]:
        """Yield one long stream."""
        yield self._stream(0, self.tokens - self.tokens // 10)

    def read_validation(self) -> Iterator[bytes]:
        """Yield one stream, drawn independently of that of `read`."""
        yield self._stream(1, self.tokens // 10)

    def _stream(self, part: int, size: int) -> bytes:
        record = 2 * self.span + 2
        count = -(-size // record)
        # Raw numbers and a remainder are the same in every release of NumPy; Generator's methods need not be.
        raw = np.random.Philox(key=np.array([self.seed, part], dtype=np.uint64)).random_raw(
            (count, self.span)
        )
        drawn = LETTERS[(raw % self.symbols).astype(np.intp)]
        text = np.empty((count, record), dtype=np.uint8)
        text[:, : self.span] = text[:, self.span + 1 : -1] = drawn
        text[:, self.span] = ord(SEPARATOR)
        text[:, -1] = ord(END)
        return text.tobytes()[:size]
