"""Readable numbers, and addresses that are safe to link to."""

import math
import re
from urllib.parse import quote

from poslab.config.text import CONTROL

DASH = "–"
DECIMALS = 4  # more would claim too much if a few seeds happen to agree


def web_link(url: object) -> str | None:
    """Return the address if it leads to a web page, else None."""
    if not isinstance(url, str) or CONTROL.search(url) or not re.fullmatch(r"https?://[\w[][^\s\\]*", url):
        return None
    return quote(url, safe=":/?#@!$&*+,;=%~-._[]")


def number(value: float | None, digits: int = 4, sign: str = "") -> str:
    """Return a number in significant digits, without an exponent: 1.523, 0.0412, 12.30."""
    if value is None or not math.isfinite(value):
        return DASH
    return _minus(f"{value:{sign}.{_decimals(value, digits)}f}")


def interval(mean: float | None, half_width: float | None, digits: int = 4, sign: bool = False) -> str:
    """Return the mean with half its interval, both with the same number of decimals: 1.523 ± 0.012.

    A half-width adds decimals up to `DECIMALS`. One below a unit of the last decimal is printed as that unit.
    One of 0 is not printed: equal seeds, such as 32 right answers of 32 in each, show no spread, but not that
    there is none.
    """
    plus = "+" if sign else ""
    if mean is None or half_width is None or not half_width > 0:  # pandas has NaN for one seed
        return number(mean, digits, plus)
    decimals = _decimals(max(abs(mean), half_width), digits)  # a mean near 0 is not known more precisely
    decimals = max(decimals, min(DECIMALS, -math.floor(math.log10(half_width))))
    half_width = max(half_width, 10.0**-decimals)
    return _minus(f"{mean:{plus}.{decimals}f} ± {half_width:.{decimals}f}")


def share(fraction: float | None, half_width: float | None = None, digits: int = 1, sign: str = "") -> str:
    """Return a share in percent with half its interval, unless that is 0, and no percent sign: 42.0 ± 3.1."""
    if fraction is None or not math.isfinite(fraction):
        return DASH
    half = f" ± {100 * half_width:.{digits}f}" if half_width else ""
    return _minus(f"{100 * fraction:{sign}.{digits}f}{half}")


def count(value: float | None) -> str:
    """Return a whole number with thousands separators: 1,024."""
    return DASH if value is None else _minus(f"{round(value):,}")


def quantity(value: float | None) -> str:
    """Return three significant digits with a metric prefix: 802 k, 1.64 M, 3.1 G."""
    if value is None or not math.isfinite(value):
        return DASH
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g} {unit}" if abs(value) < 1e15 else f"{value:.2e}"
    return f"{value:.3g}"


def duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


def multiple(k: float) -> str:
    """Return a multiple of the training length as text: L/2, L, 8 L."""
    if k == 1:
        return "L"
    return f"L/{1 / k:g}" if k < 1 and (1 / k).is_integer() else f"{k:g} L"


def _decimals(value: float, digits: int) -> int:
    if value == 0 or not math.isfinite(value):
        return digits - 1
    return max(0, min(6, digits - 1 - math.floor(math.log10(abs(value)))))


def _minus(text: str) -> str:
    """Use a true minus sign, and no sign before a zero."""
    return re.sub(r"^[+-](0(?:\.0+)?)(?![\d.])", r"\1", text).replace("-", "−")
