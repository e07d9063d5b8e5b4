"""Sizes of the paper figures, and text as they show it."""

WIDTH = 3.35  # inches: a column of a two-column paper
WIDE = 6.9  # both columns


def verbatim(text: str) -> str:
    """Text that Matplotlib does not read as mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text
