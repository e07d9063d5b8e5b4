"""Try every pair of a scheme and an attention, for the table in docs/schemes.md.

`poslab grid` prints it in Markdown.
"""

import re
from typing import Any

import torch

from poslab.config.compose import one_for_each_scheme, sections
from poslab.config.option_files import Conf
from poslab.config.schema import ConfigError
from poslab.model.attention import Attention, Site, build_attentions
from poslab.model.positions import Geometry, build_scheme

NAMED = {r"pos\.scheme=[\w.]*\w": "the scheme", r"attention\.kind=[\w.]*\w": "the mixer"}
GEOMETRY = Geometry(width=64, heads=2, context_length=64, layers=4)


def grid(conf: Conf) -> str:
    """Return the table in Markdown: schemes as rows, attentions as columns, then why some pairs fail."""
    schemes = {section["scheme"]: section for section in one_for_each_scheme(sections(conf, "pos")).values()}
    attentions = sections(conf, "attention")
    lines = [
        "| scheme | " + " | ".join(f"`{name}`" for name in attentions) + " |",
        "|---" * (len(attentions) + 1) + "|",
    ]
    reasons: dict[str, int] = {}
    for scheme, section in sorted(schemes.items()):
        cells = [_cell(section, attention, reasons) for attention in attentions.values()]
        lines.append(f"| `{scheme}` | " + " | ".join(cells) + " |")
    notes = [f"{number}. {reason}." for reason, number in reasons.items()]
    return "\n".join([*lines, "", *notes]) + "\n"


def _cell(pos: dict[str, Any], attention: dict[str, Any], reasons: dict[str, int]) -> str:
    """Return the forms in which the pair works, with the kernel if fused, or a dash and a reason's number."""
    scheme = build_scheme(pos, GEOMETRY)
    try:
        layers = [scheme.layer(index) for index in range(GEOMETRY.layers)]
        mixers = build_attentions(attention, GEOMETRY, layers)
    except ConfigError as error:
        reason = str(error)
        for pattern, word in NAMED.items():  # so that pairs with the same reason share one note
            reason = re.sub(pattern, word, reason)
        return f"– ({reasons.setdefault(reason, len(reasons) + 1)})"
    scheme.read_tokens(torch.zeros(1, 4, dtype=torch.long))
    forms = []
    for mixer, layer in zip(mixers, layers, strict=True):
        if isinstance(mixer, Attention):
            mixer.add_projections()
        mixer(torch.zeros(1, 4, GEOMETRY.width), Site(layer, scheme.place(4, None)))
        forms.append(mixer.form if mixer.form != "fused" else f"fused: {mixer.kernel.removesuffix(' (cpu)')}")
    return ", ".join(dict.fromkeys(forms))
