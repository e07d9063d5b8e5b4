"""Texts, and what should be 0, as a page shows them."""

import re


def small(value: float) -> str:
    """What should be 0: rounding differs between machines, so it has no digits."""
    return "less than 1e−9" if abs(value) < 1e-9 else f"{value:.2g}".replace("-", "−")


def plain(text: object, limit: int) -> str:
    """One line of at most `limit` characters, without control characters."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", str(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
