"""The models in the transformers library that use a scheme, with the place in the source that shows it.

A test looks up every place in the installed transformers. For a scheme without an entry,
no model is known that uses it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shipped:
    """Models that use a scheme, and words in a file of transformers/models that show it."""

    models: str
    file: str
    words: str


_YARN = '"rope_type": "yarn"'
SHIPPED = {
    "alibi": (
        Shipped("BLOOM", "bloom/modeling_bloom.py", "build_alibi_tensor"),
        Shipped("MPT", "mpt/modeling_mpt.py", "build_mpt_alibi_tensor"),
        Shipped("Falcon (as an option)", "falcon/modeling_falcon.py", "build_alibi_tensor"),
    ),
    "t5": (
        Shipped("T5", "t5/modeling_t5.py", "_relative_position_bucket"),
        Shipped("mT5", "mt5/modeling_mt5.py", "_relative_position_bucket"),
        Shipped("UMT5", "umt5/modeling_umt5.py", "_relative_position_bucket"),
    ),
    "learned": (
        Shipped("GPT-2", "gpt2/modeling_gpt2.py", "self.wpe = nn.Embedding"),
        Shipped("OPT", "opt/modeling_opt.py", "OPTLearnedPositionalEmbedding"),
    ),
    "sinusoidal": (Shipped("XGLM", "xglm/modeling_xglm.py", "XGLMSinusoidalPositionalEmbedding"),),
    "rope": (
        Shipped("Llama", "llama/modeling_llama.py", "apply_rotary_pos_emb"),
        Shipped("Mistral", "mistral/modeling_mistral.py", "apply_rotary_pos_emb"),
        Shipped("Qwen3", "qwen3/modeling_qwen3.py", "apply_rotary_pos_emb"),
        Shipped("OLMo 2", "olmo2/modeling_olmo2.py", "apply_rotary_pos_emb"),
    ),
    "rope_partial": (
        Shipped("GPT-NeoX", "gpt_neox/configuration_gpt_neox.py", "partial_rotary_factor"),
        Shipped("Phi", "phi/configuration_phi.py", "partial_rotary_factor"),
        Shipped("Qwen3-Next", "qwen3_next/configuration_qwen3_next.py", "partial_rotary_factor"),
    ),
    "rope_p": (Shipped("Gemma 4 (full-attention layers)", "gemma4/configuration_gemma4.py", "proportional"),),
    "rope_yarn": (
        Shipped("gpt-oss", "gpt_oss/configuration_gpt_oss.py", _YARN),
        Shipped("DeepSeek-V3", "deepseek_v3/modeling_deepseek_v3.py", "yarn_get_mscale"),
    ),
    "rope_ntk": (
        Shipped("HunYuan (with a fixed factor)", "hunyuan_v1_dense/modeling_hunyuan_v1_dense.py", "NTK"),
    ),
    "rope_llama3": (Shipped("Llama 3.1", "../modeling_rope_utils.py", "_compute_llama3_parameters"),),
    "schedule": (
        Shipped("SmolLM3", "smollm3/configuration_smollm3.py", "no_rope_layers"),
        Shipped("Llama 4", "llama4/configuration_llama4.py", "no_rope_layers"),
        Shipped("Command A", "cohere2/configuration_cohere2.py", "sliding_attention"),
        Shipped("gpt-oss", "gpt_oss/configuration_gpt_oss.py", "sliding_attention"),
    ),
    "log_scaled": (
        Shipped("Llama 4", "llama4/modeling_llama4.py", "attn_temperature_tuning"),
        Shipped("Ministral 3", "ministral3/modeling_ministral3.py", "llama_4_scaling"),
        Shipped("Inkling", "inkling/modeling_inkling.py", "log_scaling_n_floor"),
    ),
    "inkling": (Shipped("Inkling", "inkling/modeling_inkling.py", "InklingRelativeLogits"),),
}
