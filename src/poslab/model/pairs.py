"""Which attention works under which scheme, and how: the README's table, made by trying every pair.

As a program (`python -m poslab.model.pairs`, in the project's folder) it prints the table in Markdown.
"""

from pathlib import Path
from typing import Any

import torch

from poslab.config.compose import arms, one_for_each_scheme
from poslab.config.schema import ConfigError
from poslab.model.attention import Attention, build_attention
from poslab.model.positions import Geometry, Scheme, build_scheme

GEOMETRY = Geometry(width=64, heads=2, context_length=64, layers=4)


def grid(conf: Path) -> str:
    """The table in Markdown: a row a scheme, a column an attention, and why a pair cannot be below it."""
    schemes = {section["scheme"]: section for section in one_for_each_scheme(arms(conf / "pos")).values()}
    attentions = arms(conf / "attention")
    lines = [
        "| scheme | " + " | ".join(f"`{name}`" for name in attentions) + " |",
        "|---" * (len(attentions) + 1) + "|",
    ]
    reasons: dict[str, int] = {}
    for scheme, section in sorted(schemes.items()):
        cells = [_cell(section, attention, reasons) for attention in attentions.values()]
        lines.append(f"| `{scheme}` | " + " | ".join(cells) + " |")
    notes = [f"({number}) {reason}." for reason, number in reasons.items()]
    return "\n".join([*lines, "", *notes]) + "\n"


def _cell(pos: dict[str, Any], attention: dict[str, Any], reasons: dict[str, int]) -> str:
    """How the pair works, as the attention says it after a step, or a dash with the number of the reason."""
    whole = build_scheme(pos, GEOMETRY)
    scheme = whole.layer(0)
    try:
        built = build_attention(attention, GEOMETRY, scheme)
    except ConfigError as error:
        return f"– ({reasons.setdefault(str(error), len(reasons) + 1)})"
    _attend(built, scheme, whole)
    return built.form if built.form != "fused" else f"fused: {built.kernel.removesuffix(' (cpu)')}"


def _attend(attention: Attention, scheme: Scheme, whole: Scheme) -> None:
    q, k, v = torch.zeros(3, 1, GEOMETRY.heads, 4, GEOMETRY.head_width)
    log_gates = scheme.log_gates(torch.zeros(1, 4, GEOMETRY.width))
    attention.attend(q, k, v, scheme, whole.place(4, None), log_gates)


if __name__ == "__main__":
    print(grid(Path("conf")), end="")
