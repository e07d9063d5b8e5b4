"""A pre-norm GPT (Radford et al. 2019) whose positional scheme and attention are parts put into it.

Shapes: B batch, T tokens, D width, H heads, K head width, V vocabulary.
"""

import hashlib

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from poslab.config.schema import RunConfig
from poslab.model.attention import Attention, build_attention
from poslab.model.positions import Geometry, Scheme, build_scheme


class Block(nn.Module):
    """Attention, then a perceptron of four times the width, each behind a norm and added to its input."""

    def __init__(self, geometry: Geometry, attention: Attention) -> None:
        super().__init__()
        width = geometry.width
        self.heads = geometry.heads
        self.attention = attention
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project_attention = nn.Linear(width, width)
        self.norm_perceptron = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.project_perceptron = nn.Linear(4 * width, width)

    def forward(
        self, x: Float[Tensor, "B T D"], scheme: Scheme, positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "B T D"]:
        normed = self.norm_attention(x)
        heads = self.query_key_value(normed).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # 3 of (B, H, T, K)
        log_gates = scheme.log_gates(normed)
        # Each attention chooses its own working precision; autocast would lower it behind its back.
        with torch.autocast(x.device.type, enabled=False):
            mixed = self.attention.attend(q, k, v, scheme, positions, log_gates)
        x = x + self.project_attention(mixed.transpose(1, 2).flatten(-2))
        hidden = gelu(self.expand(self.norm_perceptron(x)), approximate="tanh")
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
        """Logits of the token after each; with `last`, only those after the last so many tokens.

        The tokens stand where `positions` say, or where the scheme places them at evaluation. Raises
        ValueError past the length that the scheme is defined up to.
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
            x = block(x, self.scheme.layer(index), positions)
        if last is not None:
            x = x[:, -last:]
        return nn.functional.linear(self.norm(x), self.embedding.weight)

    @property
    def kernel(self) -> str:
        """The attention kernels that ran in the last forward pass, layers that agree named once."""
        return ", ".join(dict.fromkeys(block.attention.kernel for block in self.blocks))  # type: ignore[union-attr,misc]

    def initialise(self, seed: int) -> None:
        """GPT-2's initialisation: N(0, 0.02), projections into the residual over sqrt(2 layers), biases 0.

        Every parameter is drawn from a stream of its own, named by the seed and the parameter, so that all
        schemes start from the same shared weights whatever parameters they add. A scheme's or an attention's
        own vectors keep the values that it gave them, and what it draws itself it draws last.
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

        6 N + 12 (layers D L) a token (Chowdhery et al. 2022, appendix B), N the matrices that tokens are
        multiplied by: the model's work by the book, the same for every scheme (whatever it adds) and every
        attention, and without a discount for the causal mask.
        """
        matrices = sum(
            parameter.numel()
            for name, parameter in self.named_parameters()
            if parameter.ndim == 2 and not name.startswith("scheme.")
        )
        attention = 12 * len(self.blocks) * self.geometry.width * self.geometry.context_length
        return float(tokens) * (6 * matrices + attention)


def named_stream(seed: int, name: str) -> torch.Generator:
    """Random numbers of their own for each seed and name."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def build_parts(config: RunConfig) -> tuple[Geometry, Scheme, list[Attention]]:
    """The parts that a configuration chooses; an attention a layer.

    Raises ConfigError where the scheme, the attention and the sizes cannot work together.
    """
    size = config.model
    geometry = Geometry(size.width, size.heads, config.context_length, size.layers)
    scheme = build_scheme(config.pos, geometry)
    layers = range(geometry.layers)
    return (
        geometry,
        scheme,
        [build_attention(config.attention, geometry, scheme.layer(index)) for index in layers],
    )


def build(config: RunConfig, vocabulary: int) -> GPT:
    """The model that a configuration describes, weights not yet initialised. Raises ConfigError."""
    return GPT(vocabulary, *build_parts(config))
