"""A scheme's picture: its effect on the logit of a key by distance, as a small SVG file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import poslab
from dev.pages.archived import AT_8L, Setting, scheme_of
from poslab.analysis.palette import COLOURS
from poslab.config.option_files import installed_conf, load
from poslab.measures.scheme_bias import Bias
from poslab.report.study_tables import StudyTables

LENGTH = 1024  # tokens: 8 L
TRAINED = 128  # L
DISTANCES = sorted({round(2 ** (step / 8)) - 1 for step in range(81)})
DISTANCE = "distance + 1 in tokens"
MOST = 4  # options with a line each; if there are more, only the smallest and the largest base are drawn
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 480, 230, 52, 14, 350, 190  # of the file and its axes

Line = Sequence[tuple[int, float]]  # distances or positions in tokens, and values


@dataclass(frozen=True)
class Picture:
    """Lines by name, over the distance or position plus 1 on a logarithmic axis."""

    lines: Mapping[str, Line]
    x: str
    y: str
    caption: str


def picture(scheme: str, options: Sequence[str], settings: Sequence[Setting]) -> Picture | None:
    """Return the picture of a scheme with these options; None if it does not depend on the distance alone.

    A rotation is drawn as the logit of a query on an equal key, together with RoPE's. For sinusoids, the
    product of two tokens' vectors is drawn. A bias is drawn as it is added; a learned one as trained in the
    first archived study. Scales of queries are drawn by position.
    """
    built = poslab.scheme(options[0])
    layer = built.layer(0)
    if scheme == "sinusoidal":
        vectors = built.embed(torch.zeros(1, LENGTH, built.geometry.width), torch.arange(LENGTH))[0].double()
        caption = "The product of two tokens' vectors by their distance, relative to distance 0."
        product = vectors @ vectors[-1]
        return Picture({scheme: _by_distance(product / product[-1])}, DISTANCE, "product", caption)
    by_content = layer.by_content or layer.overrides("score_bias")
    short = built.max_length is not None and built.max_length < LENGTH
    if by_content or short or scheme == "schedule" or built.overrides("place"):
        return None
    if layer.scales_queries:
        lines = {}
        for option in options:
            on_itself = _logits(option)[0].diagonal()
            lines[option] = [(position, float(on_itself[position])) for position in DISTANCES[1:]]
        words = "The logit of a query and its own key by position, at the start of training; 1 under RoPE."
        return Picture(lines, "position + 1 in tokens", "logit", words)
    if layer.overrides("rotate") or layer.relative_rotation(torch.tensor([1])) is not None:
        options_by_base = sorted(
            options, key=lambda option: load(installed_conf().file("pos", option)).get("base", 0)
        )
        ends = [options_by_base[0], options_by_base[-1]] if len(options) > MOST else options
        return _rotation({name: _logits(name)[0, -1] for name in dict.fromkeys(["rope", *ends])})
    if layer.pairwise_bias(torch.tensor([1]), torch.tensor([0])) is None:
        return None
    learned = bool(list(built.parameters()))
    starts = [_logits(options[0], seed, size=0.0)[:, -1] for seed in (0, 1)]
    heads: dict[str, Line] = {}
    when = ", at the start of training" if learned else ""
    if learned and (trained := _trained(scheme, settings)) is not None:
        heads, when = trained
    elif torch.equal(*starts):  # no random initial values
        heads = {f"head {head}": _by_distance(logits) for head, logits in enumerate(starts[0])}
    caption = f"The bias added to a key's logit by its distance, one line for each head{when}."
    return Picture(heads, DISTANCE, "bias (nats)", caption) if heads else None


def _trained(scheme: str, settings: Sequence[Setting]) -> tuple[dict[str, Line], str] | None:
    """Return the heads' biases in the first archived run with these and a loss at 8 L, and name the run."""
    for setting in settings:
        for arm in setting.arms:
            if scheme_of(arm) == scheme and AT_8L in arm.figures:
                run = arm.arm.finished[0]
                table = StudyTables(setting.results).table(Bias())
                if table is not None and len(biases := table[table.run == run.name].dropna(subset="bias")):
                    heads: dict[str, Line] = {
                        f"head {head}": list(zip(rows.distance, rows.bias, strict=True))
                        for head, rows in biases.groupby("head")
                    }
                    return heads, f", as trained in {setting.study} (seed {run.seed})"
    return None


def _rotation(logits: Mapping[str, Tensor]) -> Picture:
    """Return the picture of logits (T,) of the last of LENGTH tokens on each key, by the name of the line."""
    lines = {name: _by_distance(row / row[-1]) for name, row in logits.items()}
    caption = (
        "The logit of a query and an equal key (q = k) by their distance, relative to distance 0, "
        f"for the last of {LENGTH:,} tokens (8 L)."
    )
    return Picture(lines, DISTANCE, "logit, 1 at distance 0", caption)


@torch.no_grad()
def _logits(option: str, seed: int = 0, size: float = 1.0) -> Tensor:
    """Return softmax's logits (H, T, T) for equal queries and keys; without a scheme they are `size`."""
    attention = poslab.attention("softmax", poslab.scheme(option, seed=seed))
    heads, width = attention.scheme.geometry.heads, attention.scheme.geometry.head_width
    equal = torch.full((1, heads, LENGTH, width), (size / width**0.5) ** 0.5)
    return attention.scores(equal, equal)[0].double()


def _by_distance(logits: Tensor) -> Line:
    """Return a query's logits on the keys by distance back; the last key is its own."""
    return [(distance, float(logits[-1 - distance])) for distance in DISTANCES]


def svg(drawn: Picture) -> str:
    """Return the picture as SVG on white, readable on light and dark pages."""
    values = [value for line in drawn.lines.values() for _, value in line]
    low, high = min(values), max(values)
    step = _step(high - low)
    low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)

    def place(x: float, y: float) -> str:
        across = LEFT + (RIGHT - LEFT) * math.log2(x + 1) / math.log2(LENGTH)
        return f"{across:.1f},{BOTTOM - (BOTTOM - TOP) * (y - low) / (high - low):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="11" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in range(round((high - low) / step) + 1):
        y = place(0, low + tick * step).partition(",")[2]
        text = f"{low + tick * step:g}".replace("-", "−")
        parts.append(f'<path d="M{LEFT},{y}H{RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y}" dy="4" text-anchor="end">{text}</text>')
    for power in range(0, 11, 2):
        x = place(2**power - 1, low).partition(",")[0]
        parts.append(f'<text x="{x}" y="{BOTTOM + 15}" text-anchor="middle">{2**power:,}</text>')
    mark = place(TRAINED - 1, low).partition(",")[0]
    parts.append(f'<path d="M{mark},{TOP}V{BOTTOM}" stroke="#777" stroke-dasharray="3 3"/>')
    parts.append(f'<text x="{mark}" y="{TOP - 3}" text-anchor="middle" font-style="italic">L</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{drawn.x}</text>')
    middle = (TOP + BOTTOM) / 2
    parts.append(
        f'<text transform="translate(12,{middle}) rotate(-90)" text-anchor="middle">{drawn.y}</text>'
    )
    for number, (name, line) in enumerate(drawn.lines.items()):
        colour = COLOURS[number % len(COLOURS)][0]
        path = " ".join(place(x, y) for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        row = TOP + 8 + 16 * number
        parts.append(f'<path d="M{RIGHT + 12},{row}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{RIGHT + 35}" y="{row + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _step(span: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that divides `span` into four to ten parts."""
    base = 10.0 ** math.floor(math.log10(span / 4)) if span > 0 else 1.0
    return next(base * part for part in (5, 2, 1) if part == 1 or span / (base * part) >= 4)
