"""The contract of a data source: where text comes from.

A source is one module of this package, or of another (poslab.config.registry), named by `source:` in its
YAML file in conf/data, with one public subclass of TextSource. The other keys of the YAML file are its
fields; it overrides

    label            the text's name in reports
    read             the documents, each as bytes
    read_validation  the documents for validation, if the source has such a part
    pinned           True if the options fix the text, for example by a commit hash
    files_state      the state of files that are read again only after a change

A text that is not pinned is read twice, and must be the same both times. poslab.data.cache splits, tokenises
and caches texts; a source does none of that.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from poslab.config import registry
from poslab.config.checking import check
from poslab.config.schema import HELD_OUT, Options
from poslab.data.split import MOST, held_out_bytes
from poslab.data.tokens import Text

MOST_ENTRIES = 2**20


class TextSource(Options):
    """A source of documents in UTF-8 without NUL bytes, with the options that every source has."""

    source: str = Field(description="the module that reads the text")
    vocabulary: int | str = Field(
        description="bytes: one token per byte; a number: the entries of a BPE trained on the text; "
        "FILE.json: a tokenizer's file"
    )
    windows: Literal["joined", "within", "packed"] = Field(
        default="joined",
        description="training windows: joined: anywhere in the text; within: inside one document; "
        "packed: anywhere, and no document sees another",
    )

    held_out: float | str = Field(
        default=HELD_OUT,
        description="the part of the text for validation and extrapolation: a share, or bytes such as 64MB",
    )

    # Whether the options fix the text, so that prepared data are found without reading the text.
    pinned: ClassVar[bool] = False

    @field_validator("vocabulary", mode="before")
    @classmethod
    def _bytes_or_entries(cls, value: Any) -> Any:
        if (
            value == "bytes"
            or (isinstance(value, str) and value.endswith(".json"))
            or (type(value) is int and 256 < value <= MOST_ENTRIES)
        ):
            return value
        raise ValueError(
            f"{value!r} is neither bytes nor the entries of a BPE (257 to {MOST_ENTRIES:,}), "
            "nor a tokenizer's file, FILE.json"
        )

    @field_validator("held_out", mode="before")
    @classmethod
    def _share_or_bytes(cls, value: Any) -> Any:
        share = isinstance(value, float) and 0 < value <= MOST
        if share or (isinstance(value, str) and held_out_bytes(value)):
            return value
        raise ValueError(
            f"{value!r} is neither a share (above 0, at most {float(MOST)}) nor bytes such as 64MB"
        )

    def label(self) -> str:
        """Return the text's name in reports; not a local path, since reports are published."""
        raise NotImplementedError

    def read(self) -> Iterator[Text]:
        """Yield the documents as bytes, in an order that is the same on every machine. Raises ConfigError."""
        raise NotImplementedError

    def read_validation(self) -> Iterator[Text] | None:
        """Return the documents for validation; None to hold out a part of `read`."""
        return None

    def files_state(self) -> str | None:
        """Return the state of the files that are read; None if it cannot show whether they changed."""
        return None


def find(data: Mapping[str, Any]) -> TextSource:
    """Return the source that `data.source` names, with its options checked. Raises ConfigError."""
    kind = registry.find(data.get("source"), TextSource, __name__, "data.source")
    return check(kind, dict(data), "data")
