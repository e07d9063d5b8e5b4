"""Changes of a rotation's frequencies for longer sequences: interpolation, NTK, YaRN, Llama 3.1.

Each function takes theta (radians per token, float64, C pairs, fastest first, width W = 2 C) and returns the
new frequencies. The schemes rope_pi, rope_ntk, ... train with them. `evaluate.rescale` (class Rescaling)
applies them at evaluation to a model that was trained without them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# YaRN, section 3.2: pairs that turn once or less in the training length are interpolated fully, those that
# turn 32 times or more are unchanged.
YARN_SLOW, YARN_FAST = 1.0, 32.0


def interpolated(theta: Float[Tensor, "C"], factor: float) -> Float[Tensor, "C"]:
    """Return theta / s: position interpolation divides positions (Chen et al. 2023, arXiv 2306.15595)."""
    return theta / factor


def ntk(theta: Float[Tensor, "C"], factor: float | Tensor) -> Float[Tensor, "C"]:
    """Apply NTK-aware scaling: the base times s^(W/(W-2)) (Peng et al. 2023, arXiv 2309.00071, section 3.1).

    So theta_c = base^(-2c/W) becomes theta_c s^(-2c/(W-2)): the fastest pair is unchanged, and the slowest is
    divided by s.
    """
    slowest = max(1, theta.shape[0] - 1)  # a single pair is the fastest, so it is unchanged
    share = torch.arange(theta.shape[0], device=theta.device, dtype=theta.dtype) / slowest
    stretch: Tensor = factor**share
    return theta / stretch


def dynamic_ntk(
    theta: Float[Tensor, "C"], length: int | Tensor, context_length: int, factor: float = 1.0
) -> Float[Tensor, "C"]:
    """Apply NTK-aware scaling with an s that depends on the length l (arXiv 2309.00071, section 3.3).

    s = factor l / L - (factor - 1), and s = 1 up to L.
    """
    stretch = torch.as_tensor(length, device=theta.device, dtype=theta.dtype) / context_length
    return ntk(theta, (factor * stretch - (factor - 1)).clamp(min=1))


def yarn(theta: Float[Tensor, "C"], factor: float, context_length: int) -> Float[Tensor, "C"]:
    """Apply NTK by parts (arXiv 2309.00071, section 3.2): theta for fast pairs, a ramp to theta / s for slow.

    As in the authors' code (and transformers), the ramp is linear in the pair's index. It runs from the pair
    before the one that turns YARN_FAST times in the training length to the pair after YARN_SLOW times.
    """
    pairs = theta.shape[0]
    if pairs == 1:  # no ramp over a single pair: it is unchanged, as in transformers
        return theta
    number = torch.arange(pairs, device=theta.device, dtype=theta.dtype)
    logarithm = theta.log()
    fast, slow = (_pair_that_turns(logarithm, turns / context_length) for turns in (YARN_FAST, YARN_SLOW))
    fast, slow = fast.floor().clamp(min=0), slow.ceil().clamp(max=2 * pairs - 1)
    slow = torch.where(slow <= fast, fast + 0.001, slow)
    share = ((number - fast) / (slow - fast)).clamp(0, 1)
    return share * theta / factor + (1 - share) * theta


def _pair_that_turns(logarithm: Float[Tensor, "C"], turns: float) -> Float[Tensor, ""]:
    """Return the fractional index of the pair with `turns` turns per token; log theta is linear in it."""
    target = math.log(2 * math.pi * turns)
    right = (logarithm > target).sum().clamp(1, logarithm.shape[0] - 1)  # extrapolates past both ends
    # Not logarithm[right], for which the CPU would have to read `right` from the GPU.
    start, stop = logarithm.take(right - 1), logarithm.take(right)
    return right - 1 + (start - target) / (start - stop)


def yarn_query_key_scale(factor: float) -> float:
    """Return YaRN's factor on q and on k, 0.1 ln s + 1 (arXiv 2309.00071, section 3.4)."""
    return 0.1 * math.log(factor) + 1


def llama3(
    theta: Float[Tensor, "C"], factor: float, low: float, high: float, context_length: int
) -> Float[Tensor, "C"]:
    """Apply Llama 3.1's scaling, which depends on a pair's number of turns in the original length.

    The result is theta / s for pairs that turn `low` times or less, and theta for those that turn `high`
    times or more. Between them, the two are mixed, with shares linear in the number of turns.
    """
    turns = context_length * theta / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * theta / factor + share * theta


@dataclass(frozen=True)
class Rescaling:
    """A change of the rotation of a trained model."""

    method: str  # as in `evaluate.rescale`, a key of METHODS
    factor: float  # s of pi, ntk and yarn; the others ignore it

    def frequencies(
        self, theta: Float[Tensor, "C"], length: int | Tensor, context_length: int
    ) -> Float[Tensor, "C"]:
        """Return the frequencies for a sequence of `length` tokens after training at `context_length`."""
        return METHODS[self.method](theta, self.factor, length, context_length)

    @property
    def length_dependent(self) -> bool:
        """Whether the frequencies depend on how many tokens the sequence has."""
        return self.method == "dynamic"

    @property
    def query_key_scale(self) -> float:
        """The factor on q and on k."""
        return yarn_query_key_scale(self.factor) if self.method == "yarn" else 1.0


Method = Callable[[Tensor, float, int | Tensor, int], Tensor]  # theta, s, l, L
METHODS: dict[str, Method] = {
    "pi": lambda theta, factor, length, context_length: interpolated(theta, factor),
    "ntk": lambda theta, factor, length, context_length: ntk(theta, factor),
    "dynamic": lambda theta, factor, length, context_length: dynamic_ntk(theta, length, context_length),
    "yarn": lambda theta, factor, length, context_length: yarn(theta, factor, context_length),
    # RoPE dropped after training (DroPE, Gelberg et al. 2025, arXiv 2512.12167)
    "drop": lambda theta, factor, length, context_length: torch.zeros_like(theta),
}
