"""The gated delta rule (Yang et al. 2024, arXiv 2412.06464, equation 10).

    S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,    b_t = sigmoid(W_b x_t)

with the gates a_t of gated_linear.py, and queries and keys of norm 1. W_b adds D parameters per head. The
value that the state holds under a key is replaced, not added to.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, normalize

from poslab.config.schema import Options, PairError
from poslab.model.attention import Site
from poslab.model.attention.gated_linear import GatedLinear
from poslab.model.kernels.matmul import Linear
from poslab.model.positions import Geometry, Scheme


class GatedDelta(GatedLinear):
    def __init__(self, options: Options, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        if scheme.overrides("rotate_queries") or scheme.overrides("rotate_keys"):
            raise PairError(
                f"pos.scheme={scheme.name} changes queries and keys in different ways, but "
                f"attention.kind={self.name} normalises both to length 1: choose pos=rope or none, or "
                "attention=gated_linear"
            )
        self.overwrite = Linear(geometry.width, geometry.heads, bias=False)

    def strength(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"]:
        return linear(x, self.overwrite.weight.to(x.dtype)).sigmoid().mT

    def heads(
        self, read: Float[Tensor, "B T C"], site: Site
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T V"]]:
        q, k, v = super().heads(read, site)
        return normalize(q, dim=-1), normalize(k, dim=-1), v
