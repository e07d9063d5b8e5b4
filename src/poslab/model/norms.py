"""The norms of a block."""

from torch import nn

from poslab.config.schema import BlockOptions

EPSILON = 1e-6  # of RMSNorm, as in the first LLaMA and Qwen3


def rms_norm(width: int) -> nn.RMSNorm:
    """Return RMSNorm (Zhang and Sennrich 2019, equation 4) with a learned scale."""
    return nn.RMSNorm(width, eps=EPSILON)


def norm_of(width: int, options: BlockOptions) -> nn.Module:
    """Return the norm before a block's parts and after the last block."""
    return rms_norm(width) if options.norm == "rms" else nn.LayerNorm(width, bias=options.bias)
