"""The computations of the attentions and layers, beyond PyTorch's own.

matmul         matrix products and GELU on a CPU
rotation       pairs of numbers rotated by angles
cpu_causal     softmax attention on a CPU in blocks of queries, for short sequences
sliding        the same with a bias by distance, at any length
near           softmax and linear attention with a bias by the query's content for nearby keys
strips         softmax attention in plain products, for all cases without a fused kernel
flash_attn     softmax attention on CUDA with the package flash-attn
flex           softmax attention on CUDA with FlexAttention
chunked        linear attention in O(T)
channel_decay  linear attention in O(T) with a decay per channel
recurrent      a state that decays, with or without the delta rule, in O(T)
cross_entropy  the loss without the logits of all tokens at once
"""
