"""Fourier position embedding (FoPE; Hua et al. 2024, arXiv 2412.17739): each pair mixes several waves.

    cos of pair c = sum_m A_mc cos(p theta_m),   sin of pair c = sum_m B_mc sin(p theta_m)

replace RoPE's cos(p theta_c) and sin(p theta_c), for the M pairs that turn at least once in the training
length, theta_m = base^(-2m/K) >= 2 pi / L. The other pairs do not turn. A = I + N and B = I + N', so a pair's
own wave dominates. N and N' are Gaussian with Xavier's deviation times `gain`, and are not trained. Each head
of each layer draws its own from the run's seed, and the checkpoint stores them.

This is not a rotation: the waves of a pair change its length, and a logit depends on both positions. The
deviation and the fixed A and B follow the authors' code (olmo/model.py, FourierEmbedding). That code gives
pairs that do not turn a sine of 1 where the paper gives frequency 0; here they follow the paper, as in vLLM.
It also turns at most K/4 pairs; here all M turn, as in vLLM.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from poslab.config.schema import Options
from poslab.model.layered import LayeredScheme
from poslab.model.positions import Geometry, Scheme
from poslab.model.positions.hope import turning_pairs


class FoPEOptions(Options):
    base: float = Field(gt=0, description="wave m turns by base^(-2m/K) radians per token")
    gain: float = Field(gt=0, description="factor on Xavier's deviation, for the noise that mixes waves")


class _FoPELayer(Scheme):
    """The waves of one layer, M of them."""

    options: FoPEOptions
    two_sided = True
    shift_invariant = False
    mixtures: Float[Tensor, "2 H M M"]  # A and B, of cosines and of sines

    def __init__(self, options: FoPEOptions, geometry: Geometry) -> None:
        super().__init__(options, geometry)
        self.refuse_odd_heads()
        waves = turning_pairs(self, options.base)
        self.register_buffer("mixtures", torch.eye(waves).repeat(2, geometry.heads, 1, 1))

    def draw(self, stream: torch.Generator) -> None:
        heads, waves = self.mixtures.shape[1:3]
        # Xavier's deviation as PyTorch computes it for a tensor (H, M, M).
        deviation = self.options.gain * (2 / (waves * (waves + heads))) ** 0.5
        noise = torch.empty(self.mixtures.shape).normal_(0, deviation, generator=stream)
        self.mixtures.copy_(torch.eye(waves) + noise)

    def rotate(self, x: Float[Tensor, "B H T K"], positions: Int[Tensor, "T"]) -> Float[Tensor, "B H T K"]:
        width, waves = x.shape[-1], self.mixtures.shape[-1]
        number = torch.arange(0, 2 * waves, 2, device=x.device, dtype=torch.float64)
        phase = positions.double()[:, None] * self.options.base ** (-number / width)  # (T, M)
        working = torch.promote_types(x.dtype, torch.float32)
        of_cosines, of_sines = self.mixtures.to(working)
        still = width // 2 - waves
        cos = pad(phase.cos().to(working) @ of_cosines, (0, still), value=1.0)  # (H, T, K/2)
        sin = pad(phase.sin().to(working) @ of_sines, (0, still))
        first, second = x.to(working).chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)

    def can_rotate(self, width: int) -> bool:
        return width == self.geometry.head_width  # each of its pairs has its own waves


class FoPE(LayeredScheme):
    options_class = FoPEOptions
    layer_class = _FoPELayer
    parts = "waves"
    two_sided = True
    shift_invariant = False
