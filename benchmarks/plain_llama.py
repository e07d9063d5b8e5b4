"""Llama in plain PyTorch, structured as in litgpt: the same function as conf/model/llama_nano.yaml with RoPE.

RMSNorm before each half of a block, one matrix for queries, keys and values, RoPE from a table of cosines and
sines, PyTorch's fused attention, SwiGLU with two matrices, no biases. The output matrix is tied to the token
embedding, as in poslab (in litgpt it is separate).

Shapes: B batch, T tokens, D width, H heads, K head width, V vocabulary.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.RMSNorm(width, eps=1e-6)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project_attention = nn.Linear(width, width, bias=False)
        self.norm_perceptron = nn.RMSNorm(width, eps=1e-6)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.value = nn.Linear(width, hidden, bias=False)
        self.project_perceptron = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Float[Tensor, "B T D"], cos: Float[Tensor, "T K"], sin: Float[Tensor, "T K"]
    ) -> Tensor:
        parts = self.query_key_value(self.norm_attention(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        q, k = q * cos + swapped(q) * sin, k * cos + swapped(k) * sin
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project_attention(mixed.transpose(1, 2).flatten(-2))
        normed = self.norm_perceptron(x)
        return x + self.project_perceptron(silu(self.gate(normed)) * self.value(normed))


def swapped(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
    """Return the other number of each pair (c, c + K/2), with its sign in a rotation."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class PlainLlama(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, hidden: int, context_length: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        head_width = width // heads
        theta = 10000.0 ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        phase = (torch.arange(context_length)[:, None] * theta).repeat(1, 2)
        self.register_buffer("cos", phase.cos().float(), persistent=False)
        self.register_buffer("sin", phase.sin().float(), persistent=False)
        for parameter in self.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return linear(self.norm(x), self.embedding.weight)
