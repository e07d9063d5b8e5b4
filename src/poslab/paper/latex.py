"""LaTeX templates, and the escaping that lets LaTeX print any text as it is."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from poslab.report.render.page import templates
from poslab.report.tables import Column

MARK = "\x1f"  # encloses the keys of references in a text; recorded texts have no control characters
BREAKABLE = re.compile(r"([=,/._+-])")
# Brackets and stars are in braces, since LaTeX would take them for an argument after \\.
_SPECIAL = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **{character: f"{{{character}}}" for character in "[]*"},
    **dict(zip('"–—‘’“”\u00a0−', ("''", "--", "---", "`", "'", "``", "''", "~", "$-$"), strict=True)),
}
_TEXT = "textbackslash textasciicircum textasciitilde textasciigrave textless textgreater textbar dots"
_SPECIAL |= {x: f"\\{name}{{}}" for x, name in zip("\\^~`<>|…", _TEXT.split(), strict=True)}
_MATHS = "pm times cdot geq leq approx infty surd rightarrow theta"
_SPECIAL |= {x: f"$\\{name}$" for x, name in zip("±×·≥≤≈∞√→θ", _MATHS.split(), strict=True)}
_LIGATURES = "-',"  # two in a row would be printed as one different character


@cache
def latex_environment() -> Environment:
    """Return an environment for this package's templates that escapes every value except Markup."""
    environment = templates(
        Path(__file__).parent,
        finalize=lambda text: text if isinstance(text, Markup) else escape_latex(text),
        keep_trailing_newline=True,
        trim_blocks=True,
        block_start_string="<%",  # LaTeX itself uses braces
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
    )
    environment.filters |= {"groups": _groups, "reference": _reference, "as_it_is": Markup}
    environment.filters |= {"breakable": _breakable, "cited": _cited}
    return environment


def _reference(name: str) -> Markup:
    """Return a name as a LaTeX label, with "-" for each character except letters, digits, "." and "+"."""
    return Markup(re.sub(r"[^A-Za-z0-9.+-]", "-", name))


def _cited(text: str) -> Markup:
    """Return a text with the reference keys between its marks turned into \\cite commands."""
    parts = enumerate(text.split(MARK))
    return Markup("".join(f"~\\cite{{{part}}}" if i % 2 else escape_latex(part) for i, part in parts))


def _breakable(text: str) -> Markup:
    """Return a command line that LaTeX may break after any of its separators."""
    return Markup(BREAKABLE.sub("\\1\\\\allowbreak{}", escape_latex(text)))


def _groups(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """Return each heading with the numbers of the first and last column that share it; [] if none has one."""
    groups, first = [], 1
    for heading, members in groupby(columns, key=lambda column: column.group):
        n = len(list(members))
        groups.append((heading, first, first + n - 1))
        first += n
    return groups if any(heading for heading, _, _ in groups) else []


def escape_latex(text: object) -> str:
    """Escape text for LaTeX. Characters that its fonts lack are printed as code points."""
    characters = unicodedata.normalize("NFC", str(text))
    following = [*characters[1:], ""] if characters else []
    return "".join(
        _character(letter) + ("{}" if letter == after and letter in _LIGATURES else "")
        for letter, after in zip(characters, following, strict=True)
    )


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~":
        return character
    # LaTeX reads Latin letters in UTF-8.
    return character if "À" <= character <= "ſ" else f"{{[}}U+{ord(character):04X}{{]}}"
