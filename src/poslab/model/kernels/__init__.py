"""The arithmetic under the attentions and the layers, beside PyTorch's own.

matmul         products and GELU on a CPU
rotation       pairs of numbers turned by angles
cpu_causal     softmax attention on a CPU in blocks of queries, short sequences
sliding        the same under a bias by distance, at any length
near           softmax and linear attention under a bias of each query's own for the keys near it
strips         softmax attention in plain products, for all cases without a fused kernel
flash_attn     softmax attention on CUDA by the package of this name
flex           softmax attention on CUDA by FlexAttention
chunked        linear attention in O(T)
channel_decay  the same where each channel decays
recurrent      a state that decays, with or without the delta rule, in O(T)
cross_entropy  the loss without the logits of all tokens at once
"""
