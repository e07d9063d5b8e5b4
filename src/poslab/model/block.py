"""The block of a GPT: a mixer, then a perceptron, each applied after a norm and added to its input."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.schema import BlockOptions, PairError
from poslab.model.attention import Attention, Mixer, Site
from poslab.model.canon import CANON_KERNEL, Canon
from poslab.model.kernels.matmul import GeluLinear, Linear
from poslab.model.norms import norm_of
from poslab.model.positions import Geometry, Scheme


class Perceptron(nn.Module):
    """A perceptron with GELU and a hidden layer of four times the width."""

    def __init__(self, width: int, options: BlockOptions) -> None:
        super().__init__()
        self.convolved = "d" in options.canon
        kind = Linear if self.convolved else GeluLinear
        self.expand = kind(width, 4 * width, bias=options.bias)
        if self.convolved:
            self.canon_hidden = Canon(4 * width)
        self.project_perceptron = Linear(4 * width, width, bias=options.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = self.expand(x)
        if self.convolved:
            hidden = nn.functional.gelu(self.canon_hidden(hidden), approximate="tanh")
        return self.project_perceptron(hidden)


class SwiGLU(nn.Module):
    """silu(W x) times V x, projected back (Shazeer 2020, equation 6); about as large as `Perceptron`."""

    def __init__(self, width: int, options: BlockOptions) -> None:
        super().__init__()
        hidden = max(8, 8 * round(width / 3))  # 8/3 D, to the nearest multiple of 8
        self.expand = Linear(width, 2 * hidden, bias=options.bias)
        self.expand.rows = hidden, hidden  # W, then V
        self.canon_hidden = Canon(2 * hidden) if "d" in options.canon else nn.Identity()
        self.project_perceptron = Linear(hidden, width, bias=options.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        gate, value = self.canon_hidden(self.expand(x)).chunk(2, dim=-1)
        return self.project_perceptron(nn.functional.silu(gate) * value)


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self, geometry: Geometry, attention: Mixer, options: BlockOptions) -> None:
        """Raise PairError for attention options if the mixer is not an attention, for sinks if the weights
        do not come from a softmax, and for Canon layers if the geometry is not causal.
        """
        super().__init__()
        if options.canon and not geometry.causal:
            raise PairError(
                "model.canon mixes a token only with earlier ones, but here tokens also see later ones: "
                "leave model.canon out, or choose objective=causal"
            )
        if options.sinks and not attention.takes_sinks:
            raise PairError(
                f"attention.kind={attention.name} has no softmax in which a sink could take a share: choose "
                "attention=flash or softmax, or leave model.sinks out"
            )
        if options.sinks and not attention.normalised:
            raise PairError(
                "softmax does not normalise the weights of the positional scheme, so a sink cannot take a "
                "share: choose a scheme with softmax weights, such as rope, or leave model.sinks out"
            )
        if isinstance(attention, Attention):
            attention.add_projections(options)
        elif options.query_groups or options.qk_norm or options.output_gate or "b" in options.canon:
            raise PairError(
                f"attention.kind={attention.name} is not an attention, and only attention has "
                "model.query_groups, model.qk_norm, model.output_gate and b of model.canon: leave them out"
            )
        # The last bit of the gradients' norm depends on this order.
        self.norm_attention = norm_of(geometry.width, options)
        self.canon_attention = Canon(geometry.width) if "a" in options.canon else nn.Identity()
        self.attention = attention
        self.norm_perceptron = norm_of(geometry.width, options)
        self.canon_perceptron = Canon(geometry.width) if "c" in options.canon else nn.Identity()
        kind = SwiGLU if options.mlp == "swiglu" else Perceptron
        self.perceptron = kind(geometry.width, options)
        # The number of earlier tokens that the second half of the block reads.
        self.lookback = (CANON_KERNEL - 1) * len({"c", "d"}.intersection(options.canon))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        last: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the output; with `last`, only for the final `last` tokens (B last D), at much lower cost."""
        count = None if last is None else min(last + self.lookback, x.shape[1])
        mixed = self.attention(
            self.canon_attention(self.norm_attention(x)), Site(scheme, positions, last=count)
        )
        x = (x if count is None else x[:, -count:]) + mixed
        x = x + self.perceptron(self.canon_perceptron(self.norm_perceptron(x)))
        return x if last is None else x[:, -last:]
