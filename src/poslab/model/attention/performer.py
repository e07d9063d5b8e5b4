"""Linear attention with Performer's random features, FAVOR+ (Choromanski et al. 2021, arXiv 2009.14794).

    phi(x) = exp(omega x' - |x'|^2 / 2) / sqrt(features),  x' = x / K^(1/4)          (lemma 1)

so that <phi(q), phi(k)> is an unbiased estimate of exp(<q, k> / sqrt K), softmax's kernel. The rows of omega
are orthogonal in blocks of K and have the lengths of Gaussian vectors. `draw` draws them for each layer from
the run's seed, and the checkpoint stores them.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from poslab.config.schema import Options, PairError
from poslab.model.attention.linear import Linear
from poslab.model.positions import Geometry, Scheme

LEAST = 1e-6  # added to each feature, as in the authors' code: those of a far key would all be 0 in float32
HIGHEST_EXPONENT = 60.0  # exp(60), summed over thousands of keys, is far below float32's largest number


class PerformerOptions(Options):
    features: int = Field(ge=2, multiple_of=2, description="random features; even, so that pairs can rotate")


class Performer(Linear):
    options_class = PerformerOptions
    takes_decay = False  # its features mix the channels
    options: PerformerOptions
    omega: Float[Tensor, "features K"]

    def __init__(self, options: PerformerOptions, geometry: Geometry, scheme: Scheme) -> None:
        super().__init__(options, geometry, scheme)
        if not scheme.can_rotate(options.features):
            raise PairError(
                f"pos.scheme={scheme.name} cannot rotate vectors of attention.features={options.features}: "
                f"choose attention.features={geometry.head_width}, or attention=linear"
            )
        self.register_buffer("omega", torch.zeros(options.features, geometry.head_width))

    def draw(self, stream: torch.Generator) -> None:
        features, width = self.omega.shape
        blocks = []
        for _ in range(-(-features // width)):
            square = torch.empty(width, width, dtype=torch.float64).normal_(generator=stream)
            orthogonal, triangle = torch.linalg.qr(square)
            # QR is unique up to signs; with the signs of a positive diagonal the directions are uniform.
            blocks.append(orthogonal.T * triangle.diagonal().sign()[:, None])
        lengths = torch.empty(features, width, dtype=torch.float64).normal_(generator=stream).norm(dim=-1)
        self.omega.copy_(torch.cat(blocks)[:features] * lengths[:, None])

    def feature_map(self, x: Float[Tensor, "B H T K"], queries: bool) -> Float[Tensor, "B H T W"]:
        scaled = x * x.shape[-1] ** -0.25
        omega = self.omega.to(x.dtype)
        exponent = scaled @ omega.T - scaled.square().sum(dim=-1, keepdim=True) / 2
        # One constant for each query and one for all keys cancel in the quotient, and bring exp into
        # float32's range. The keys' constant must not depend on the keys, or later ones would change earlier
        # tokens. No exponent of a key is above |omega|^2 / 2, about K / 2, which is in range up to K = 120.
        if queries:
            constant = exponent.amax(dim=-1, keepdim=True).detach()
        else:
            constant = (omega.square().sum(dim=-1).amax() / 2 - HIGHEST_EXPONENT).clamp(min=0)
        return (exponent - constant).exp() + LEAST
