"""How the page shows texts, and numbers that should be 0."""

import re


def small(value: float) -> str:
    """Format a number that should be 0, without digits that rounding changes between machines."""
    return "less than 1e−9" if abs(value) < 1e-9 else f"{value:.2g}".replace("-", "−")


def plain(text: object, limit: int) -> str:
    """Return the text as one line of at most `limit` characters, without control characters."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", str(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
