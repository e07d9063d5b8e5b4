"""Numbers and texts as a page shows them."""

import math
import re


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits, without an exponent: 1.523, 0.0412, 12.30."""
    return "–" if value is None else _minus(f"{value:.{_decimals(value, digits)}f}")


def interval(mean: float, half_width: float | None, digits: int = 4, sign: bool = False) -> str:
    """The mean with half its interval, both to the same decimals: 1.523 ± 0.012."""
    plus = "+" if sign else ""
    if half_width is None:
        return _minus(f"{mean:{plus}.{_decimals(mean, digits)}f}")
    decimals = _decimals(max(abs(mean), half_width), digits)  # of what is nearly 0, no more than is known
    if half_width > 0:
        decimals = max(decimals, min(6, -math.floor(math.log10(half_width))))
    return _minus(f"{mean:{plus}.{decimals}f} ± {half_width:.{decimals}f}")


def quantity(value: float) -> str:
    """Three digits and a unit of thousands: 802 k, 1.64 M, 3.1 G."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g}"


def small(value: float) -> str:
    """What should be 0: rounding differs between machines, so it has no digits."""
    return "less than 1e−9" if abs(value) < 1e-9 else f"{value:.2g}".replace("-", "−")


def plain(text: object, limit: int) -> str:
    """One line of at most `limit` characters, without control characters."""
    shown = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", str(text)).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _decimals(value: float, digits: int) -> int:
    return digits - 1 if value == 0 else max(0, min(6, digits - 1 - math.floor(math.log10(abs(value)))))


def _minus(text: str) -> str:
    """A true minus sign, and none before a zero."""
    return re.sub(r"^[+-](0(?:\.0+)?)(?![\d.])", r"\1", text).replace("-", "−")
