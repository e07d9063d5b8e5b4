"""T5's learned bias by bucketed distance (Raffel et al. 2020, section 2.1).

Half of the buckets hold one distance each. The other half grow with the logarithm of the distance up to
`max_distance`, beyond which all distances share the last bucket. One table serves all layers. If tokens see
later ones, keys after the query use the second half of the buckets, and the others use the first.

Training in windows of L tokens never uses buckets that begin at distance L or further, which keep their
initial values. For L under 114, lower `max_distance` and `buckets`, so that the last bucket begins before L.

The table is multiplied by sqrt(K), K the head width, as in GPT-NeoX and x-transformers. T5 itself adds it to
logits that are not divided by sqrt(K); here they are.
"""

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from poslab.config.schema import ConfigError
from poslab.model.positions import Geometry, LearnedOptions, Scheme, Tail


class T5Options(LearnedOptions):
    buckets: int = Field(ge=2, description="biases that each head learns, one per range of distances")
    max_distance: int = Field(
        ge=2, description="buckets widen up to this distance; the last bucket also has all distances beyond"
    )


class T5(Scheme):
    options_class = T5Options
    two_sided = True
    options: T5Options

    def __init__(self, options: T5Options, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        sides = 1 if geometry.causal else 2
        self.buckets = options.buckets // sides  # on each side
        if options.buckets % (2 * sides) or options.max_distance <= self.buckets // 2:
            raise ConfigError(
                f"pos=t5 needs pos.buckets in multiples of {2 * sides} and pos.max_distance above "
                f"{self.buckets // 2}, not {options.buckets} and {options.max_distance}"
            )
        # Once, on the CPU: reading a number from a tensor in `forward` would break a compiled graph in two.
        buckets = self.bucket(torch.arange(options.max_distance + 1, device="cpu"))
        self.horizon = int((buckets < self.buckets - 1).sum())
        self.bucket_bias = nn.Parameter(torch.empty(options.buckets, geometry.heads))

    @property
    def untrained_from(self) -> int | None:
        length, window = self.geometry.context_length, self.geometry.window
        if self.horizon < length or not self.geometry.consecutive:
            return None
        buckets = self.bucket(torch.arange(self.horizon + 1, device="cpu"))
        first = int((buckets <= buckets[length - 1]).sum())
        return first if window is None or first < window else None

    def bucket(self, distance: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
        """Return the number of each distance's bucket among those of its side."""
        exact = self.buckets // 2
        # float32 as in T5's own code, so that a distance on the edge of two buckets falls to the same side
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.options.max_distance / exact)
        coarse = (exact + (ratio * (self.buckets - exact)).long()).clamp(max=self.buckets - 1)
        return torch.where(distance < exact, distance, coarse)

    def bias(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"]:
        return self.bucket_bias[self.bucket(distance)].T * math.sqrt(self.geometry.head_width)

    def bias_after(self, distance: Int[Tensor, "N"]) -> Float[Tensor, "H N"]:
        bucket = self.bucket(distance) + self.buckets
        return self.bucket_bias[bucket].T * math.sqrt(self.geometry.head_width)

    def tail(self) -> Tail:
        """Return the constant tail from the last bucket on (distance 113 for the published 32 and 128)."""
        return Tail(self.horizon, self.bucket_bias.new_zeros(self.geometry.heads))
