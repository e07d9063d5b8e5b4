"""Refuse a model whose tokens see later ones under a causal objective: its low losses would mean nothing.

A few tokens are tried when a run is planned, under schemes and mixers of one's own, too. A leak through a
parameter that begins at 0 is not seen: `poslab check-scheme` tries random ones.
"""

import torch
from torch import Tensor

from poslab.config.schema import ConfigError, RunConfig
from poslab.model.block import Block
from poslab.model.gpt import build_parts, initialise

TOKENS = 24
WIDEST, LONGEST, MOST = 1024, 1 << 16, 10**7  # width, L and own parameters of what is tried, drawn in no time
STRONG = 8  # by which matrices are multiplied: at the start of training attention adds next to nothing
SEEN = 1e-3  # of the largest value: what a change of later tokens may do to earlier ones, by rounding


@torch.no_grad()
def check_causal(config: RunConfig) -> None:
    """Raise ConfigError where the scheme's input or a block's output at a token changes with later tokens."""
    geometry, scheme, mixers = build_parts(config)
    length = min(TOKENS, geometry.context_length, scheme.max_length or TOKENS)
    own = sum(weight.numel() for part in (scheme, *mixers) for weight in part.parameters())
    large = geometry.width > WIDEST or geometry.context_length > LONGEST or own > MOST
    if not geometry.causal or large or length < 2:
        return
    initialise(scheme, 0, geometry.layers, "scheme")
    cut, positions = length // 2, scheme.place(length, None)
    later = torch.arange(length) >= cut
    tokens = torch.arange(length)[None] % 2
    x = torch.randn(2, 1, length, geometry.width, generator=torch.Generator().manual_seed(0))
    kinds = {(type(scheme.layer(index)), type(mixer)): index for index, mixer in enumerate(mixers)}
    blocks = {index: Block(geometry, mixers[index], config.model) for index in kinds.values()}
    for index, block in blocks.items():
        initialise(block, 0, geometry.layers, f"blocks.{index}")
        for weight in block.parameters():
            weight.mul_(STRONG if weight.ndim > 1 else 1)

    def outputs(changed: bool) -> dict[str, Tensor]:
        scheme.read_tokens((tokens + later) % 2 if changed else tokens)
        hidden = scheme.embed(torch.where(later[:, None], x[int(changed)], x[0]), positions)
        found = {f"pos.scheme={scheme.name}": hidden}
        for index, block in blocks.items():
            layer = scheme.layer(index)
            found[f"pos.scheme={layer.name} and attention.kind={mixers[index].name}"] = block(
                hidden, layer, positions
            )
        return {place: output[:, :cut] for place, output in found.items()}

    before, after = outputs(False), outputs(True)
    for place, output in before.items():
        if (after[place] - output).abs().max() > SEEN * output.abs().max():
            raise ConfigError(
                f"with {place} a token sees later ones, so a causal loss would mean nothing: see "
                "`poslab check-scheme`, or choose objective=masked"
            )
