"""Trained models as folders that `AutoModelForCausalLM.from_pretrained` opens.

If transformers has a model with the same logits, the folder contains that model: GPT-2, GPT-NeoX, Llama,
Qwen3, SmolLM3, or Llama 4 and Qwen3-Next without experts. Every other model is opened with poslab's class
(transformers_model.py) and trust_remote_code=True.
"""

import json
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from poslab.config.checking import check
from poslab.config.request import Config
from poslab.library.weights import check_next_token, run_directory, tokenizer_json
from poslab.model.gpt import GPT
from poslab.model.norms import EPSILON
from poslab.objectives import build_objective
from poslab.training.trained import read_trained_model

FOLDER = "transformers"  # in a run's directory
CODE = '''"""The model in this folder. transformers has no class for it: it needs the package poslab."""

from poslab.library.transformers_model import PoslabConfig, PoslabForCausalLM

__all__ = ["PoslabConfig", "PoslabForCausalLM"]
'''
Names = Mapping[str, str]  # transformers' module names by poslab's, in a block without the block's name
Written = tuple[dict[str, Any], dict[str, Tensor]]  # config.json, and the tensors


def export_transformers(run: str | PathLike[str], to: str | PathLike[str] | None = None) -> Path:
    """Write a finished run as a folder for transformers, and return its path.

    By default it is `transformers` in the run's directory. It contains config.json, model.safetensors, the
    tokenizer and, if transformers has no such model, modeling_poslab.py. Raise ConfigError if the run is not
    finished or does not predict the next token.
    """
    directory = run_directory(run)
    trained = read_trained_model(directory)
    config = check(Config, trained.settings, "")
    check_next_token(config.objective, "choose format=safetensors")
    gpt = trained.gpt(config)
    settings, tensors = in_transformers(gpt, config)
    folder = directory / FOLDER if to is None else Path(to).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"config.json": json.dumps(settings, indent=2)}
    if settings["model_type"] == "poslab":
        texts["modeling_poslab.py"] = CODE
    texts["tokenizer.json"] = tokenizer_json(directory, config).decode()
    texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    for name, text in texts.items():
        (folder / name).write_text(text)
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    return folder


def in_transformers(gpt: GPT, config: Config) -> Written:
    """Return the config.json and the tensors of a model, for the family that has the same logits."""
    block, scheme = config.model, config.pos.get("scheme")
    softmax = config.attention.get("kind") in ("softmax", "flash")
    known = softmax and not (block.sinks or block.canon)
    grouped = block.query_groups not in (None, block.heads)
    extras = grouped or block.qk_norm or block.output_gate
    if known and block.norm == "layer" and block.mlp == "gelu" and not extras:
        if scheme == "learned" and block.tied:
            return _gpt2(gpt, config)
        if scheme == "rope":
            return _gpt_neox(gpt, config)
    if known and block.norm == "rms" and block.mlp == "swiglu":
        family, rotation = _with_rms_norm(config)
        if family:
            return _llama(gpt, config, family, rotation)
    objective = build_objective(config.objective)
    names = {"AutoConfig": "PoslabConfig", "AutoModelForCausalLM": "PoslabForCausalLM"}
    settings = {
        "model_type": "poslab",
        "architectures": ["PoslabForCausalLM"],
        "auto_map": {auto: f"modeling_poslab.{name}" for auto, name in names.items()},
        "settings": config.result_settings(),
        "vocabulary": gpt.embedding.num_embeddings - objective.extra_tokens,
        "vocab_size": gpt.embedding.num_embeddings,
        "num_hidden_layers": config.model.layers,
        "tie_word_embeddings": False,  # the GPT ties them itself
    }
    return settings, dict(gpt.state_dict())


def _common(gpt: GPT, config: Config, family: str) -> dict[str, Any]:
    """Return the entries of config.json that have the same name in all families."""
    return {
        "architectures": [family],
        "vocab_size": gpt.embedding.num_embeddings,
        "hidden_size": config.model.width,
        "num_hidden_layers": config.model.layers,
        "num_attention_heads": config.model.heads,
        "max_position_embeddings": config.context_length,
        "tie_word_embeddings": config.model.tied,
        "dtype": "float32",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt2(gpt: GPT, config: Config) -> Written:
    model = config.model
    settings = {
        "model_type": "gpt2",
        **_common(gpt, config, "GPT2LMHeadModel"),
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_positions": config.context_length,
        "activation_function": "gelu_new",
        **{f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")},
    }
    names = {
        "embedding": "transformer.wte",
        "norm": "transformer.ln_f",
        "norm_attention": "ln_1",
        "attention.query_key_value": "attn.c_attn",
        "attention.project_attention": "attn.c_proj",
        "norm_perceptron": "ln_2",
        "perceptron.expand": "mlp.c_fc",
        "perceptron.project_perceptron": "mlp.c_proj",
    }
    weights = dict(gpt.state_dict())
    table = weights.pop("scheme.table")
    tensors = {"transformer.wpe.weight": table}
    for name, tensor in _renamed(_with_biases(weights), names, "transformer.h").items():
        # GPT-2's matrices have one row per input.
        tensors[name] = tensor.T if ".c_" in name and tensor.ndim == 2 else tensor
    return settings, tensors


def _gpt_neox(gpt: GPT, config: Config) -> Written:
    settings = {
        "model_type": "gpt_neox",
        **_common(gpt, config, "GPTNeoXForCausalLM"),
        "intermediate_size": 4 * config.model.width,
        "hidden_act": "gelu_new",
        "use_parallel_residual": False,
        "layer_norm_eps": 1e-5,
        **_rotation(config.pos),
        "rotary_pct": 1.0,
        "rotary_emb_base": config.pos["base"],
    }
    names = {
        "embedding": "gpt_neox.embed_in",
        "norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
        "norm_attention": "input_layernorm",
        "attention.query_key_value": "attention.query_key_value",
        "attention.project_attention": "attention.dense",
        "norm_perceptron": "post_attention_layernorm",
        "perceptron.expand": "mlp.dense_h_to_4h",
        "perceptron.project_perceptron": "mlp.dense_4h_to_h",
    }
    heads = config.model.heads

    def by_head(name: str, tensor: Tensor) -> Tensor:  # rows: queries, keys and values of each head
        if "query_key_value" not in name:
            return tensor
        shape = 3, heads, -1, *tensor.shape[1:]
        rows = _half_pairs(tensor, heads, heads, config.model.width // heads, config.pos["pairing"])
        return rows.reshape(shape).transpose(0, 1).flatten(0, 2)

    tensors = _renamed(_with_biases(gpt.state_dict()), names, "gpt_neox.layers")
    return settings, {name: by_head(name, tensor) for name, tensor in tensors.items()}


def _with_rms_norm(config: Config) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the entries of config.json for the family that fits, and the section of the rotation.

    The entries are empty if no family fits.
    """
    block, pos = config.model, config.pos
    has = tuple(name for name in ("qk_norm", "output_gate", "bias") if getattr(block, name))
    full = {"layer_types": ["full_attention"] * block.layers}
    match {**pos, "has": has}:
        case {"scheme": "rope", "has": () | ("bias",)}:
            return {"model_type": "llama", "mlp_bias": block.bias}, pos
        case {"scheme": "rope", "has": ("qk_norm",)}:
            return {"model_type": "qwen3"}, pos
        case {"scheme": "rope_partial", "pairing": "half", "has": ("qk_norm", "output_gate")}:
            return {"model_type": "qwen3_next", "num_experts": 0, **full}, pos
        case {"scheme": "schedule", "has": (), "schemes": schemes, "layers": cycle}:
            pair = sorted(schemes.values(), key=lambda section: section["scheme"] != "rope")
            names = [cycle[layer % len(cycle)] for layer in range(block.layers)]
            turned = {"no_rope_layers": [int(schemes[name]["scheme"] == "rope") for name in names]}
            if any("window" in section for section in pair):
                return {}, pos
            match pair:
                case [{"scheme": "rope"} as rotation, {"scheme": "none"}]:
                    return {"model_type": "smollm3", **turned}, rotation
                case [
                    {"scheme": "rope", "pairing": "interleaved"} as rotation,
                    {"scheme": "log_scaled", "rule": "llama4", "of": {"scheme": "none"}} as still,
                ]:
                    dense = {"moe_layers": [], "use_qk_norm": False, **full}
                    grows = {"attn_scale": float(still["strength"]), "floor_scale": still["start"]}
                    return {"model_type": "llama4_text", **turned, **dense, **grows}, rotation
    return {}, pos


CLASSES = {  # of the families with RMSNorm and SwiGLU
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}


def _llama(gpt: GPT, config: Config, family: dict[str, Any], rotation: Mapping[str, Any]) -> Written:
    model, kind = config.model, family["model_type"]
    groups = model.query_groups or model.heads
    hidden = gpt.blocks[0].perceptron.expand.rows[0]  # type: ignore[union-attr,index]
    settings = {
        **_common(gpt, config, CLASSES[kind]),
        **family,
        "intermediate_size": hidden,
        **({"intermediate_size_mlp": hidden} if kind == "llama4_text" else {}),
        "num_key_value_heads": groups,
        "head_dim": model.width // model.heads,
        "attention_bias": model.bias,
        "hidden_act": "silu",
        "rms_norm_eps": EPSILON,
        **_rotation(rotation),
    }
    perceptron = "feed_forward" if kind == "llama4_text" else "mlp"
    names = {
        "embedding": "model.embed_tokens",
        "norm": "model.norm",
        "output": "lm_head",
        "norm_attention": "input_layernorm",
        "attention.norm_queries": "self_attn.q_norm",
        "attention.norm_keys": "self_attn.k_norm",
        "attention.project_attention": "self_attn.o_proj",
        "norm_perceptron": "post_attention_layernorm",
        "perceptron.project_perceptron": f"{perceptron}.down_proj",
        **{f"self_attn.{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
        **{f"mlp.{part}_proj": f"{perceptron}.{part}_proj" for part in ("gate", "up")},
    }
    width, pairing = settings["head_dim"], rotation["pairing"]
    if kind == "llama4_text":  # rotates pairs of neighbours, as the run did: the rows keep their order
        pairing = "half"
    weights = dict(gpt.state_dict())

    def parts(name: str, tensor: Tensor) -> dict[str, Tensor]:
        """Return the tensors of transformers for one of poslab's, under intermediate names."""
        where, _, part = name.rpartition(".")
        block, _, module = where.rsplit(".", 2) if where.startswith("blocks") else ("", "", where)
        match module:
            case "gate_attention":
                return {}  # written with query_key_value, after each head's queries
            case "norm_queries" | "norm_keys":
                return {name: _half_pairs(tensor, 1, 0, width, pairing)}
            case "query_key_value":
                rows = _half_pairs(tensor, model.heads, groups, width, pairing)
                q, k, v = torch.split(rows, [count * width for count in (model.heads, groups, groups)])
                if model.output_gate:
                    gates = weights[f"{block}.attention.gate_attention.{part}"]
                    by_head = (side.reshape(model.heads, width, -1) for side in (q, gates))
                    q = torch.cat(tuple(by_head), dim=1).reshape(-1, *q.shape[1:])
                named = zip("qkv", (q, k, v), strict=True)
                return {f"{block}.self_attn.{letter}_proj.{part}": rows for letter, rows in named}
            case "expand":
                sides = zip(("gate", "up"), tensor.chunk(2), strict=True)
                return {f"{block}.mlp.{side}_proj.{part}": rows for side, rows in sides}
        return {name: tensor}

    tensors = {key: rows for name, tensor in weights.items() for key, rows in parts(name, tensor).items()}
    if kind == "qwen3_next":  # its norms multiply by 1 + weight
        norm = re.compile(r"(.+\.)?norm(_\w+)?\.weight")
        tensors = {name: rows - 1 if norm.fullmatch(name) else rows for name, rows in tensors.items()}
    return settings, _renamed(tensors, names, "model.layers")


def _rotation(pos: Mapping[str, Any]) -> dict[str, Any]:
    base, share = float(pos["base"]), pos.get("fraction")
    partial = {} if share is None else {"partial_rotary_factor": share}
    return {"rope_theta": base, "rope_parameters": {"rope_type": "default", "rope_theta": base, **partial}}


def _half_pairs(rows: Tensor, heads: int, groups: int, width: int, pairing: str) -> Tensor:
    """Return the rows of queries, keys and values for pairs (c, c + W/2), which transformers rotates."""
    if pairing == "half":
        return rows
    by_head = rows.reshape(-1, width, *rows.shape[1:])
    turned, values = by_head[: heads + groups], by_head[heads + groups :]
    turned = torch.cat([turned[:, 0::2], turned[:, 1::2]], dim=1)
    return torch.cat([turned, values]).flatten(0, 1)


def _with_biases(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with biases of 0 for those that a model with `model.bias=false` lacks."""
    biases = {
        name.removesuffix("weight") + "bias": tensor.new_zeros(len(tensor))
        for name, tensor in weights.items()
        if name.endswith("weight") and not name.startswith(("embedding", "output"))
    }
    return {**biases, **weights}


def _renamed(weights: Mapping[str, Tensor], names: Names, layers: str) -> dict[str, Tensor]:
    """Return the weights by transformers' names, in which the blocks are called `layers`."""

    def renamed(name: str) -> str:
        part, _, kind = name.rpartition(".")
        if match := re.fullmatch(r"blocks\.(\d+)\.(.+)", part):
            return f"{layers}.{match[1]}.{names[match[2]]}.{kind}"
        return f"{names[part]}.{kind}"

    return {renamed(name): tensor for name, tensor in weights.items()}
