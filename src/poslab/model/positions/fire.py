"""FIRE (Li et al. 2023, arXiv 2310.04418): a learned function of the distance over the query's position.

    b_h(i, j) = f_h( psi(i - j) / psi(max(i, threshold)) ),  psi(x) = log(1 + |c| x)

f is a perceptron 1 -> hidden -> heads with ReLU. c and the threshold are learned; they start at 0.1 and at
`threshold` times L. The paper has 32 hidden units and threshold 512 at L = 2048, a quarter.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import skip_init

from poslab.model.positions import Geometry, LearnedOptions, Scheme

LEAST = 1e-6  # added to the denominator, so that the quotient stays finite at position 0


class FIREOptions(LearnedOptions):
    hidden: int = Field(ge=1, description="width of the hidden layer of the learned function")
    threshold: float = Field(gt=0, description="initial lower bound on the query's position, a share of L")


class FIRE(Scheme):
    options_class = FIREOptions
    two_sided = True  # by |i - j|, as in the authors' code
    shift_invariant = False
    options: FIREOptions

    def __init__(self, options: FIREOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        # Without initial values, which `draw` sets: they would take long for a huge `hidden`.
        self.expand = skip_init(nn.Linear, 1, options.hidden)  # type: ignore[no-untyped-call]
        self.project = skip_init(nn.Linear, options.hidden, geometry.heads)  # type: ignore[no-untyped-call]
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.threshold = nn.Parameter(torch.ones(1))  # multiplied by `threshold` L

    def draw(self, stream: torch.Generator) -> None:
        """Draw the perceptron's weights as PyTorch does: uniform within 1 / sqrt(inputs)."""
        for linear in (self.expand, self.project):
            bound = linear.in_features**-0.5
            for parameter in (linear.weight, linear.bias):
                drawn = torch.empty(parameter.shape).uniform_(-bound, bound, generator=stream)
                with torch.no_grad():
                    parameter.copy_(drawn)

    def pairwise_bias(self, queries: Int[Tensor, "Q"], keys: Int[Tensor, "N"]) -> Float[Tensor, "H Q N"]:
        threshold = self.threshold.abs() * self.options.threshold * self.geometry.context_length
        numerator = self._psi(self.distances(queries, keys))
        share = (
            numerator / (self._psi(torch.maximum(queries.to(threshold.dtype), threshold)) + LEAST)[:, None]
        )
        bias: Tensor = self.project(self.expand(share[..., None]).relu())
        return bias.permute(2, 0, 1)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p(self.c.abs() * x)
