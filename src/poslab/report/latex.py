"""The table of arms for a paper: a booktabs tabular in a table, plain ASCII whatever a label holds."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import EXPLORATORY
from poslab.report.notes import notes
from poslab.report.tables import Column, Table, arms_table

# In braces are a bracket and a star, which after \\ would be its argument.
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **{character: f"{{{character}}}" for character in "[]*"},
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "→": r"$\rightarrow$",
    "°": r"$^{\circ}$",
    "µ": r"$\mu$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
    "\u0328": "k",
}
_NAMES = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon"
_NAMES += " phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
_GREEK = dict(zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", _NAMES.split(), strict=True))
# LaTeX has no letters of their own for those that look like Latin ones.
_SPECIAL |= dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "oABEZHIKMNOPTYX", strict=True))
_SPECIAL |= {letter: f"$\\{name}$" for letter, name in _GREEK.items()}
_LIGATURES = "-',"  # twice in a row, they are drawn as one other mark


def latex(results: Results) -> str:
    """The whole of table.tex."""
    table = arms_table(results)
    warned = [f"% Note well. {escape_latex(note.text)}" for note in notes(results) if note.warning]
    label = re.sub(r"[^A-Za-z0-9.+-]", "-", results.study)
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *warned,
            r"\begin{table*}",
            r"\centering",
            r"\small",
            f"\\caption{{{escape_latex(f'{table.caption} {_how_sure(results)}')}}}",
            f"\\label{{tab:poslab-{label}}}",
            *_tabular(table),
            r"\end{table*}",
            "",
        ]
    )


def _how_sure(results: Results) -> str:
    if results.seeds < 2:
        return "One seed an arm: no interval, no winner claimed."
    settled = "" if results.seeds >= EXPLORATORY else ": exploratory"
    fewer = len({len(item.rows) for item in results.arms}) > 1
    return (
        f"Means over {'at most ' if fewer else ''}{results.seeds} seeds an arm with 95 % Student-t "
        f"intervals{settled}."
    )


def _tabular(table: Table) -> list[str]:
    kinds = "".join("r" if column.number else "l" for column in table.columns)
    return [
        f"\\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        *_groups(table.columns),
        _line([column.title for column in table.columns]),
        r"\midrule",
        *(_line([cell.text for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _groups(columns: Sequence[Column]) -> list[str]:
    """A line of the headings that neighbouring columns share, with a rule under each."""
    if not any(column.group for column in columns):
        return []
    cells, rules, first = [], [], 1
    for heading, members in groupby(columns, key=lambda column: column.group):
        n = len(list(members))
        cells.append(f"\\multicolumn{{{n}}}{{c}}{{{escape_latex(heading)}}}")
        rules += [f"\\cmidrule(lr){{{first}-{first + n - 1}}}"] if heading else []
        first += n
    return [f"{' & '.join(cells)} \\\\", " ".join(rules)]


def _line(cells: Sequence[str]) -> str:
    return f"{' & '.join(map(escape_latex, cells))} \\\\"


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands; what its fonts lack is named by its code point."""
    characters = unicodedata.normalize("NFC", text)
    following = [*characters[1:], ""] if characters else []
    return "".join(
        _character(one) + ("{}" if one == after and one in _LIGATURES else "")
        for one, after in zip(characters, following, strict=True)
    )


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~":
        return character
    decomposed = unicodedata.normalize("NFD", character)
    base, marks = decomposed[0], decomposed[1:]
    if marks and base.isascii() and all(mark in _ACCENTS for mark in marks):
        shown = base
        for mark in marks:
            shown = f"\\{_ACCENTS[mark]}{{{shown}}}"
        return shown
    return f"{{[}}U+{ord(character):04X}{{]}}"
