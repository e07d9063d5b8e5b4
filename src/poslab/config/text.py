"""Text from configurations and records made one harmless line, and lists of it as a sentence has them."""

import re
from decimal import Decimal
from pathlib import Path
from typing import TypeGuard

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a study: a directory right where it should be
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_ABSOLUTE = re.compile(r"(?<![\w.:/~-])(?:~|file://)?/(?:[^\s:/'\"<>,;()]+/)+([^\s:/'\"<>,;()]*)")


def plain(text: object, limit: int = 300) -> str:
    """One line of visible text: no control characters, directories of the machine cut to their last name."""
    shown = _ABSOLUTE.sub(r"\1", CONTROL.sub(" ", str(text))).strip()
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def is_file_name(name: object) -> TypeGuard[str]:
    """Whether it names a file or a folder inside another one, and none that is hidden."""
    if not isinstance(name, str) or "\0" in name or name.startswith("."):
        return False
    return bool(name) and Path(name).name == name


def printable(text: str) -> str:
    """`text` in one line without control characters: titles and reasons come from configs and records."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def listing(items: list[str], limit: int = 6) -> str:
    """a, b and c; past the limit, how many more."""
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def rate_text(rate: float) -> str:
    """A learning rate with all its digits and no exponent: 0.00025."""
    return f"{Decimal(repr(rate)):f}"
