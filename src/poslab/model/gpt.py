"""A pre-norm GPT (Radford et al. 2019) whose positional scheme and attention are parts put into it.

Shapes: B batch, T tokens, D width, H heads, K head width, V vocabulary.
"""

import hashlib

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.schema import RunConfig
from poslab.model.attention import Attention, Site, build_attention
from poslab.model.kernels.matmul import Linear, linear
from poslab.model.positions import Geometry, Scheme, build_scheme


class Block(nn.Module):
    """Attention, then a perceptron of four times the width, each behind a norm and added to its input."""

    def __init__(self, geometry: Geometry, attention: Attention) -> None:
        super().__init__()
        width = geometry.width
        self.heads = geometry.heads
        self.attention = attention
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = Linear(width, 3 * width)
        self.project_attention = Linear(width, width)
        self.norm_perceptron = nn.LayerNorm(width)
        self.expand = Linear(width, 4 * width)
        self.project_perceptron = Linear(4 * width, width)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        last: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """With `last`, the output of the final `last` tokens alone (B last D), which costs much less."""
        normed = self.norm_attention(x)
        # Split first, then into heads: so their gradients are laid side by side without a further copy.
        parts = self.query_key_value(normed).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)  # (B, H, T, K)
        site = Site(scheme, positions, scheme.log_gates(normed))
        # Each attention chooses its own working precision, which autocast would lower.
        with torch.autocast(x.device.type, enabled=False):
            if last is None:
                mixed = self.attention.attend(q, k, v, site)
            else:
                mixed = self.attention.attend_last(q, k, v, site, last)
                x = x[:, -last:]
        x = x + self.project_attention(mixed.transpose(1, 2).flatten(-2))
        hidden = self.expand.gelu(self.norm_perceptron(x))
        output: Float[Tensor, "B T D"] = x + self.project_perceptron(hidden)
        return output


class GPT(nn.Module):
    """Next-token logits; the output matrix is the token embedding's (Press and Wolf 2017)."""

    def __init__(
        self, vocabulary: int, geometry: Geometry, scheme: Scheme, attentions: list[Attention]
    ) -> None:
        super().__init__()
        self.geometry = geometry
        self.scheme = scheme
        self.embedding = nn.Embedding(vocabulary, geometry.width)
        self.blocks = nn.ModuleList(Block(geometry, attention) for attention in attentions)
        self.norm = nn.LayerNorm(geometry.width)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        last: int | None = None,
        positions: Int[Tensor, "T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each; with `last`, after the final `last` tokens alone: B last V.

        `positions` are those of the tokens; None: where the scheme places them at evaluation. Raises
        ValueError for more tokens than the scheme is defined for.
        """
        length = tokens.shape[1]
        limit = self.scheme.max_length
        if limit is not None and length > limit:
            raise ValueError(f"{length} tokens, but the positional scheme is defined up to {limit}")
        if positions is None:
            positions = self.scheme.place(length, None)
        positions = positions.to(tokens.device)
        x = self.scheme.embed(self.embedding(tokens), positions)
        for index, block in enumerate(self.blocks):
            # Of the others, only the keys and values of the last block have an effect.
            scored = last if index == len(self.blocks) - 1 else None
            # forward, not the call: a compiled block would be compiled again for each shape of an evaluation
            apply = block if self.training else block.forward
            x = apply(x, self.scheme.layer(index), positions, scored)
        return linear(self.norm(x), self.embedding.weight)

    def compile_blocks(self) -> None:
        """Have PyTorch compile the blocks, for training alone: evaluation runs them as they are.

        Block by block and not as a whole, since the blocks share one compilation, however many they are.
        """
        for block in self.blocks:
            block.compile(dynamic=False)

    @property
    def kernel(self) -> str:
        """The attention kernels that ran in the last forward pass, each named once."""
        return ", ".join(dict.fromkeys(block.attention.kernel for block in self.blocks))  # type: ignore[union-attr,misc]

    def initialise(self, seed: int) -> None:
        """GPT-2's initialisation: N(0, 0.02), projections into the residual over sqrt(2 layers), biases 0.

        Every parameter is drawn from a stream of its own, named by the seed and the parameter, so that all
        schemes start from the same shared weights whatever parameters they add. Vectors of a scheme or an
        attention keep the values that its constructor gave them, and its `draw` comes last.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2 and (name.startswith("scheme.") or ".attention." in name):
                continue
            if parameter.ndim < 2:
                nn.init.constant_(parameter, float(name.endswith("weight")))  # norms 1, biases 0
                continue
            deviation = 0.02 / (2 * len(self.blocks)) ** 0.5 if ".project_" in name else 0.02
            drawn = torch.empty(parameter.shape).normal_(0, deviation, generator=named_stream(seed, name))
            with torch.no_grad():
                parameter.copy_(drawn)
        for name, module in self.named_modules():
            if isinstance(module, Scheme | Attention):
                module.draw(named_stream(seed, name))

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def training_flops(self, tokens: int) -> float:
        """Floating-point operations of a forward and a backward pass over `tokens` tokens in windows of L.

        6 N + 12 (layers D L) a token (Chowdhery et al. 2022, appendix B), N the parameters in the matrices
        that tokens are multiplied by. By this convention the work is the same under every scheme and
        attention, and the causal mask saves nothing.
        """
        matrices = sum(
            parameter.numel()
            for name, parameter in self.named_parameters()
            if parameter.ndim == 2 and not name.startswith("scheme.")
        )
        attention = 12 * len(self.blocks) * self.geometry.width * self.geometry.context_length
        return float(tokens) * (6 * matrices + attention)


def named_stream(seed: int, name: str) -> torch.Generator:
    """A generator of random numbers for this seed and name alone."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def build_parts(config: RunConfig) -> tuple[Geometry, Scheme, list[Attention]]:
    """The geometry, the scheme and an attention for each layer, as a configuration chooses them.

    Raises ConfigError where they cannot work together.
    """
    size = config.model
    geometry = Geometry(size.width, size.heads, config.context_length, size.layers)
    scheme = build_scheme(config.pos, geometry)
    layers = (scheme.layer(index) for index in range(geometry.layers))
    return geometry, scheme, [build_attention(config.attention, geometry, layer) for layer in layers]


def build(config: RunConfig, vocabulary: int) -> GPT:
    """The model that a configuration describes; `initialise` draws its weights. Raises ConfigError."""
    return GPT(vocabulary, *build_parts(config))
