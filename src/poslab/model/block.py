"""The block of a GPT: a mixer, then a perceptron, each behind a norm and added to its input."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.schema import BlockOptions, PairError, swiglu_width
from poslab.model.attention import Attention, Mixer, Site
from poslab.model.kernels.matmul import GeluLinear, Linear
from poslab.model.norms import norm_of
from poslab.model.positions import Geometry, Scheme


class Perceptron(nn.Module):
    """Four times the width, GELU, and back."""

    def __init__(self, width: int, bias: bool = True) -> None:
        super().__init__()
        self.expand = GeluLinear(width, 4 * width, bias=bias)
        self.project_perceptron = Linear(4 * width, width, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.project_perceptron(self.expand(x))


class SwiGLU(nn.Module):
    """silu(W x) times V x, and back (Shazeer 2020, equation 6), with as many parameters as `Perceptron`."""

    def __init__(self, width: int, bias: bool = True) -> None:
        super().__init__()
        hidden = swiglu_width(width)
        self.expand = Linear(width, 2 * hidden, bias=bias)  # W, then V
        self.project_perceptron = Linear(hidden, width, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        gate, value = self.expand(x).chunk(2, dim=-1)
        return self.project_perceptron(nn.functional.silu(gate) * value)


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self, geometry: Geometry, attention: Mixer, options: BlockOptions) -> None:
        """Raise PairError where the options are those of attention and the mixer is none."""
        super().__init__()
        if isinstance(attention, Attention):
            attention.add_projections(options)
        elif options.query_groups or options.qk_norm or options.output_gate:
            raise PairError(
                f"attention.kind={attention.name} has no queries: model.query_groups, model.qk_norm and "
                "model.output_gate are for attention; leave them out"
            )
        # The last bit of the gradients' norm depends on this order.
        self.norm_attention = norm_of(geometry.width, options)
        self.attention = attention
        self.norm_perceptron = norm_of(geometry.width, options)
        kind = SwiGLU if options.mlp == "swiglu" else Perceptron
        self.perceptron = kind(geometry.width, options.bias)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        scheme: Scheme,
        positions: Int[Tensor, "T"],
        last: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """With `last`, return the output of only the final `last` tokens (B last D), at a much lower cost."""
        mixed = self.attention(self.norm_attention(x), Site(scheme, positions, last=last))
        x = (x if last is None else x[:, -last:]) + mixed
        return x + self.perceptron(self.norm_perceptron(x))
