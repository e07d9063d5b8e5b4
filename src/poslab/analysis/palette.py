"""Colours, markers and dashes: a scheme has the same colour in every figure, table and study.

The scheme determines the colour, and the variant (a base, a rescaling) its tint. Both determine the marker,
so that lines differ in grey too; the attention determines the dash. RoPE has too many variants for one blue:
they also use an indigo and a cyan.
"""

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

# For white paper and for dark screens. The first seven are Okabe and Ito's without yellow, which is hard to
# see on white paper; rotations and heads use these.
COLOURS = (
    ("#0072b2", "#5ab0ec"),
    ("#d55e00", "#f08a4b"),
    ("#008a63", "#3ecb9d"),
    ("#b8568f", "#e79bc8"),
    ("#b07900", "#eab93f"),
    ("#3a95cf", "#9bd4f5"),
    ("#4a4a4a", "#d0d0d0"),
    ("#8a3b2f", "#d9897c"),
    ("#6a51a3", "#b3a2e0"),
    ("#5f7a1f", "#b5cc6a"),
    ("#0f7f86", "#63cdd3"),
)
PLAIN = 7  # the number of colours for lines that are not arms
GREY = 6
# The schemes in the order of their colours; the colour of any other scheme follows from its name.
SCHEMES = ("rope", "alibi", "t5", "learned", "sinusoidal", "xpos", "none", "fire", "fox", "kerple", "pope")
# Variants of RoPE in the order of their looks, common ones first; others' looks follow from their names.
_FIRST = "pi ntk yarn llama3 500k dynamic 500 1k 2k 5k 50k 100k 1m"
ROPES = f"{_FIRST} learned none partial p randomised sqrt log ntk_notes"
# Additional colours for the variants of a scheme.
FURTHER = {SCHEMES.index("rope"): (("#4f46b8", "#a39bf0"), ("#00899a", "#4fd0de"))}
# Tints of variants: the share of white in the mix or, below 0, of black.
TINTS = (0.0, 0.4, -0.3, 0.6, -0.5, 0.2, -0.15)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1.5, 1.5),
    (6, 2, 1.5, 2),
    (9, 3),
    (3, 1.5, 1.5, 1.5, 1.5, 1.5),
)
# The number of each attention's dash. Softmax computes what flash does, so without flash it is solid too.
ATTENTIONS = {"flash": 0, "linear": 1, "softmax": 2, "performer": 3, "gated_linear": 4, "gated_delta": 5}
OF_ARMS = 1_000  # numbers of arms' looks start here; those of other lines are below
VARIANTS = 1_000


@dataclass(frozen=True)
class Look:
    light: str
    dark: str
    marker: str
    dash: tuple[float, ...]  # lengths on and off in points; empty if solid


def look(number: int) -> Look:
    """Return the look with this number: that of an arm from OF_ARMS on, of another line below."""
    if number < OF_ARMS:
        light, dark = COLOURS[number % PLAIN]
        return Look(light, dark, MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)])
    rest, dash = divmod(number - OF_ARMS, len(DASHES))
    colour, variant = divmod(rest, VARIANTS)
    colours = (COLOURS[colour], *FURTHER.get(colour, ()))
    tint = TINTS[variant // len(colours) % len(TINTS)]
    light, dark = (_tinted(shade, tint) for shade in colours[variant % len(colours)])
    return Look(light, dark, MARKERS[(colour + variant) % len(MARKERS)], DASHES[dash])


def _tinted(colour: str, tint: float) -> str:
    """Mix a colour with white in the share `tint`, or with black in the share `-tint` if it is negative."""
    end = 255 if tint > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + abs(tint) * (end - part)):02x}" for part in parts)


def arm_numbers(arms: Iterable[tuple[str, str]]) -> list[int]:
    """Return the number of each arm's look; an arm is given by its scheme's label and its attention.

    Numbers are the same in every study, except for arms with equal scheme and attention: these take the
    scheme's next variants, in order. Schemes of other packages have a colour that no other scheme of the
    study has, as long as one is free.
    """
    listed, numbers = list(arms), list[int]()
    places = _places(dict.fromkeys(pos for pos, _ in listed))
    dashes = dict(ATTENTIONS)
    if all(attention != "flash" for _, attention in listed):
        dashes["softmax"] = dashes["flash"]
    for pos, attention in listed:
        colour, variant = places[pos]
        dash = dashes.get(attention, _hashed(attention, len(DASHES)))
        number = _number(colour, variant, dash)
        while number in numbers:
            variant += 1
            number = _number(colour, variant, dash)
        numbers.append(number)
    return numbers


def _number(colour: int, variant: int, dash: int) -> int:
    return OF_ARMS + (colour * VARIANTS + variant % VARIANTS) * len(DASHES) + dash


def _places(schemes: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the numbers of each scheme's colour and variant, by the scheme's label."""
    known = {pos: _place(pos) for pos in schemes}
    taken = {place[0] for place in known.values() if place is not None}
    places: dict[str, tuple[int, int]] = {}
    for pos, place in known.items():
        if place is None:  # a scheme of another package
            first = _hashed(pos, len(COLOURS))
            around = [(first + step) % len(COLOURS) for step in range(len(COLOURS))]
            place = next((colour for colour in around if colour not in taken), first), 0
            taken.add(place[0])
        places[pos] = place
    return places


def _place(pos: str) -> tuple[int, int] | None:
    """Return the numbers of a scheme's colour and variant (rope_500k: one of rope), or None if not known."""
    scheme, _, variant = pos.replace(" ", "_").partition("_")
    if scheme not in SCHEMES:
        return None
    if not variant:
        return SCHEMES.index(scheme), 0
    ropes = ROPES.split()
    known = ropes.index(variant) if variant in ropes else len(ropes) + _hashed(variant, VARIANTS // 2)
    return SCHEMES.index(scheme), 1 + known


def _hashed(name: str, n: int) -> int:
    return zlib.crc32(name.encode()) % n


def line_number(line: int) -> int:
    """Return the number of a rescaled line's look, which is grey for line 0, the model as trained."""
    return line if line > GREY else (line - 1) % (GREY + 1)


def head_number(head: int) -> int:
    """Return the number of an attention head's look, which no rotation uses."""
    return math.lcm(PLAIN, len(MARKERS), len(DASHES)) + head
