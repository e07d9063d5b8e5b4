"""A pre-norm GPT (Radford et al. 2019) built from a positional scheme and mixers.

Shapes: B batch, T tokens, D width, H heads, K head width, V vocabulary.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from poslab.config.schema import GPT2_BLOCK, BlockOptions, RunConfig
from poslab.model.attention import Mixer, build_attentions
from poslab.model.block import Block
from poslab.model.kernels.cross_entropy import losses, mean_loss
from poslab.model.kernels.matmul import Linear, linear
from poslab.model.norms import norm_of
from poslab.model.positions import Geometry, Scheme, build_scheme
from poslab.objectives import build_objective


class GPT(nn.Module):
    """A GPT. With `block.tied`, the token embedding is also the output matrix (Press and Wolf 2017).

    Forward hooks run in training and evaluation, except on the scheme, untied `output` and recurrent gates.
    """

    def __init__(
        self,
        vocabulary: int,
        geometry: Geometry,
        scheme: Scheme,
        attentions: Sequence[Mixer],
        block: BlockOptions = GPT2_BLOCK,
    ) -> None:
        super().__init__()
        self.geometry = geometry
        self.scheme = scheme
        self.embedding = nn.Embedding(vocabulary, geometry.width)
        self.blocks = nn.ModuleList(Block(geometry, attention, block) for attention in attentions)
        self.norm = norm_of(geometry.width, block)
        self.output = None if block.tied else Linear(geometry.width, vocabulary, bias=False)
        self.recompute = False  # whether training stores only the input of each block for the backward pass
        self._compiled: list[Callable[..., Any]] = []  # the compiled blocks, after `compile_blocks`
        self.register_load_state_dict_pre_hook(_rename_old_weights)  # type: ignore[no-untyped-call]

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        last: int | None = None,
        positions: Int[Tensor, "T"] | None = None,
        targets: Int[Tensor, "B T"] | None = None,
        reduction: Literal["mean", "none"] = "mean",
    ) -> Tensor:
        """Return the logits (B T V) at each token; under the causal objective, those of the next token.

        With `last`, return them only for the final `last` tokens (B last V). `positions` are the tokens'
        positions; None means the scheme's positions at evaluation. If they have gaps and the scheme is for
        consecutive ones, flash and linear attention count tokens for a bias by distance and a window; softmax
        uses the gaps. With `targets` (B T, or B last), return their mean cross entropy in nats, or with
        reduction="none" each target's; a large vocabulary's logits are then never all in memory. Raise
        ValueError for another reduction or too many tokens. Second derivatives and torch.func do not work.
        """
        length = tokens.shape[1]
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction={reduction!r} is neither mean nor none")
        limit = self.scheme.max_length
        if limit is not None and length > limit:
            raise ValueError(f"{length} tokens, but the positional scheme is defined up to {limit}")
        positions = (self.scheme.place(length, None) if positions is None else positions).to(tokens.device)
        self.scheme.read_tokens(tokens)
        x = self.scheme.embed(self.embedding(tokens), positions)
        # Not compiled at evaluation, where a block would be compiled again for each of many shapes.
        blocks: Iterable[Callable[..., Any]] = (self.training and self._compiled) or self.blocks
        recompute = self.recompute and self.training and torch.is_grad_enabled()
        for index, block in enumerate(blocks):
            # In the last block, tokens before the final `last` are keys and values only.
            scored = last if index == len(self.blocks) - 1 else None
            inputs = x, self.scheme.layer(index), positions, scored
            x = checkpoint(block, *inputs, use_reentrant=False) if recompute else block(*inputs)
        x, weight = self.norm(x), self.embedding.weight if self.output is None else self.output.weight
        if targets is None:
            return linear(x, weight)
        if reduction == "mean":
            return mean_loss(x.flatten(0, 1), weight, targets.flatten())
        return losses(x.flatten(0, 1), weight, targets.flatten()).view(targets.shape)

    def compile_blocks(self) -> None:
        """Compile the blocks for training with torch.compile; evaluation runs them uncompiled.

        Blocks are compiled one by one, so that all of them share one compilation. Hooks inside a block are
        compiled with it, so register them before the first step.
        """
        self._compiled = [torch.compile(block, dynamic=False) for block in self.blocks]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle, without the compiled blocks."""
        return {**super().__getstate__(), "_compiled": []}  # type: ignore[no-untyped-call]

    @property
    def kernel(self) -> str:
        """The attention kernels that ran in the last forward pass, each named once."""
        return ", ".join(dict.fromkeys(block.attention.kernel for block in self.blocks))  # type: ignore[union-attr,misc]

    def initialise(self, seed: int) -> None:
        """Draw GPT-2's initial weights: N(0, 0.02), residual projections over sqrt(2 layers), biases 0.

        Each parameter has its own random stream, seeded by `seed` and the parameter's name. All schemes
        therefore start from the same shared weights, whatever parameters they add. Vectors of a scheme or
        mixer keep their constructor's values. `draw` of the schemes, mixers and Canon layers runs last.
        """
        initialise(self, seed, len(self.blocks))

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def training_flops(self, tokens: int) -> float:
        """Return the floating-point operations of forward and backward over `tokens` tokens in windows of L.

        That is 6 N + 12 (layers D L) per token (Chowdhery et al. 2022, appendix B), where N counts the
        parameters of the matrices that multiply tokens. By this convention every scheme and attention has
        the same number, and the causal mask saves nothing.
        """
        unused = ("scheme.",) if self.output is None else ("scheme.", "embedding.")
        matrices = sum(
            parameter.numel()
            for name, parameter in self.named_parameters()
            if parameter.ndim == 2 and not name.startswith(unused)
        )
        attention = 12 * len(self.blocks) * self.geometry.width * self.geometry.context_length
        return float(tokens) * (6 * matrices + attention)


def initialise(part: nn.Module, seed: int, layers: int, where: str = "") -> None:
    """Draw the weights of a GPT, or of a part of one, as `GPT.initialise` does.

    `where` is the part's name in the GPT, such as blocks.0.attention; `layers` is the GPT's number of blocks.
    """
    for name, parameter in part.named_parameters(where):
        name = drawn_as(name)
        in_scheme_or_mixer = name.startswith("scheme.") or ".attention." in name
        if parameter.ndim < 2 and in_scheme_or_mixer and not name.endswith("gate_attention.bias"):
            continue
        if parameter.ndim < 2:
            nn.init.constant_(parameter, float(name.endswith("weight")))  # norms 1, biases 0
            continue
        deviation = 0.02 / (2 * layers) ** 0.5 if ".project_" in name else 0.02
        drawn = torch.empty(parameter.shape).normal_(0, deviation, generator=named_stream(seed, name))
        with torch.no_grad():
            parameter.copy_(drawn)
    for name, module in part.named_modules(prefix=where):
        if draw := getattr(module, "draw", None):
            draw(named_stream(seed, name))


# In older versions attention's projections and the perceptron's layers were attributes of the block.
MOVED = re.compile(r"^(blocks\.\d+\.)(attention\.(?=(query_key_value|project_attention)\.)|perceptron\.)")


def drawn_as(name: str) -> str:
    """Return the name that seeds a parameter's initial values, and that older checkpoints use."""
    return MOVED.sub(r"\1", name)


def _rename_old_weights(gpt: nn.Module, weights: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename the `weights` of an older checkpoint, in place."""
    for name in gpt.state_dict(keep_vars=True):
        if (older := prefix + drawn_as(name)) in weights:
            weights[prefix + name] = weights.pop(older)


def named_stream(seed: int, name: str) -> torch.Generator:
    """Return a random number generator that depends only on `seed` and `name`."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def build_parts(config: RunConfig) -> tuple[Geometry, Scheme, list[Mixer]]:
    """Build the geometry, the scheme and each layer's mixer from a configuration.

    Raise ConfigError if they cannot work together.
    """
    size = config.model
    causal = build_objective(config.objective).causal
    geometry = Geometry(size.width, size.heads, config.context_length, size.layers, causal=causal)
    scheme = build_scheme(config.pos, geometry)
    layers = [scheme.layer(index) for index in range(geometry.layers)]
    return geometry, scheme, build_attentions(config.attention, geometry, layers)


def build(config: RunConfig, vocabulary: int) -> GPT:
    """Build the model for a text with `vocabulary` different tokens; raise ConfigError as `build_parts` does.

    The objective's own tokens come after those of the text. `initialise` draws the weights.
    """
    extra = build_objective(config.objective).extra_tokens
    return GPT(vocabulary + extra, *build_parts(config), config.model)
