"""The arithmetic under the attentions and the layers, beside PyTorch's own.

matmul      products and GELU on a CPU
cpu_causal  softmax attention on a CPU in blocks of queries, short sequences
sliding     the same under a bias by distance, at any length
strips      softmax attention in plain products, for all cases without a fused kernel
flex        softmax attention on CUDA by FlexAttention
chunked     linear attention in O(T)
"""
