"""Measure the cost of a bias or a window in fused attention: python benchmarks/attention_bias.py

Attention of one layer under schemes that add to the logits, in windows of 512 tokens (`none@512`), and with a
bias by content that ends after 256 tokens (`inkling:256`), forward and with backward, as ratios to the plain
fused kernel (pos=none), in turns. One thread, float32, 4 heads of width 32, at least 4,096 tokens.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in_turns import in_turns, ratio
from poslab.config.compose import arms
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme

CONF = Path(__file__).parent.parent / "conf"
HEADS, HEAD_WIDTH = 4, 32
TOKENS = 4_096
# Upper bounds on the ratio for forward and backward, each from a number of tokens on.
BOUNDS = {
    "alibi": {1024: 1.15},
    "t5": {1024: 1.5},
    "none@512": {512: 1.05, 4096: 0.5, 16384: 0.15},
    "inkling:256": {4096: 2.5},
}
LEAST_ROUNDS = 7


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--schemes", default="alibi,t5,kerple,fox,none@512,inkling:256")
    arguments.add_argument("--lengths", default="128,1024,4096,16384")
    arguments.add_argument("--rounds", type=int, default=25, help="rounds; fewer at slow lengths")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    schemes = ["none", *options.schemes.split(",")]
    for length in map(int, options.lengths.split(",")):
        windows = max(1, TOKENS // length)
        rounds = max(LEAST_ROUNDS, min(options.rounds, options.rounds * TOKENS // length))
        print(f"\n{windows} x {length:,} tokens, ratios to pos=none: medians, 95 % intervals")
        for backward in (False, True):
            layers = {pos: layer(pos, length, windows, backward) for pos in schemes}
            seconds = in_turns({pos: run for pos, (run, _) in layers.items()}, rounds, torch.device("cpu"))
            for pos, (_, kernel) in layers.items():
                if pos == "none":
                    continue
                result = ratio(seconds[pos], seconds["none"])
                bounds = [bound for least, bound in BOUNDS.get(pos, {}).items() if length >= least]
                missed = backward and bounds and result.median > bounds[-1]
                passes = "forward and backward" if backward else "forward"
                print(f"{pos:11} {passes:21} {result}  {kernel()}" + ("  above its bound" if missed else ""))


def layer(
    pos: str, length: int, windows: int, backward: bool
) -> tuple[Callable[[], object], Callable[[], str]]:
    """Return a function for one pass of a layer's attention, and one for the name of the kernel that ran."""
    pos, _, window = pos.partition("@")
    pos, _, extent = pos.partition(":")
    section = arms(CONF / "pos")[pos]
    if extent:  # the length of the scheme's bias in tokens
        section = {**section, "extent": min(1.0, int(extent) / length)}
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, length, layers=1, window=int(window) if window else None)
    stream = torch.Generator().manual_seed(length)
    scheme = build_scheme(section, geometry)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_(generator=stream)
    first = scheme.layer(0)
    attention: Any = build_attention({"kind": "flash"}, geometry, first)
    # The layout is that of the model: heads within tokens.
    q, k, v, upstream = torch.randn(4, windows, length, HEADS, HEAD_WIDTH, generator=stream).transpose(2, 3)
    x = torch.randn(windows, length, geometry.width, generator=stream)
    positions, learned = torch.arange(length), list(first.parameters())

    def run() -> tuple[Tensor, ...]:
        leaves = [tensor.detach().requires_grad_(backward) for tensor in (q, k, v)]
        with torch.set_grad_enabled(backward):
            mixed = attention.attend(*leaves, Site.of(first, positions, x))
            if not backward:
                return (mixed,)
            return torch.autograd.grad(mixed, [*leaves, *learned], upstream)

    return run, lambda: attention.kernel


if __name__ == "__main__":
    main()
