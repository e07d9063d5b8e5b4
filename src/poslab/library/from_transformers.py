"""Causal language models of the transformers library, with the interface that evaluation uses of a GPT.

Weights are read from safetensors only, and no code in a model's folder is run. A rotation is rescaled by
transformers' own implementation: linear interpolation, dynamic NTK and YaRN are its rope types `linear`,
`dynamic` and `yarn`, and NTK is its `default` with a larger base.
"""

import copy
import hashlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.installation import with_extra
from poslab.config.schema import ConfigError
from poslab.config.text import plain
from poslab.model.rescaling import Rescaling
from poslab.model.verification import sees_later_tokens
from poslab.objectives import UNSCORED

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

LOGITS = 2**24  # computed at a time: 64 MiB in float32
ROPE_TYPES = {"pi": "linear", "ntk": "default", "dynamic": "dynamic", "yarn": "yarn"}  # by evaluate.rescale
BY_LENGTH = ("dynamic", "longrope")  # rope types with angles that depend on the number of tokens


class TransformersModel(nn.Module):
    """A causal language model of transformers with the interface that evaluation uses of a GPT."""

    def __init__(self, model: "PreTrainedModel", context_length: int) -> None:
        """`context_length` is the training length of the model, in tokens."""
        super().__init__()
        self.model = model
        self.context_length = context_length
        self.geometry = SimpleNamespace(causal=True)
        self.separators: tuple[int, int] | None = None  # a token of the text, and the model's token for it
        self.scheme = Positions(model, context_length)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        last: int | None = None,
        *,
        targets: Int[Tensor, "B T"],
        reduction: Literal["none"] = "none",
    ) -> Float[Tensor, "B T"]:
        """Return the cross entropy of each target in nats; `targets` are those of the final tokens.

        The logits are those of the model's own class, a part of the positions at a time: its head is called
        on parts of the output of the layers below it.
        """
        if self.separators is not None:
            of_text, of_model = self.separators
            tokens, targets = (torch.where(side == of_text, of_model, side) for side in (tokens, targets))
        self.scheme.begin()
        config: Any = self.model.config
        if tokens.shape[1] > getattr(config, "max_seq_len", math.inf):  # MPT's biases cover so many tokens
            config.max_seq_len = tokens.shape[1]
        below = self.model.get_decoder()
        if below is self.model or isinstance(below, nn.Linear):  # as in Llama 4 and ModernBERT
            below = self.model.model
        output = below(input_ids=tokens, use_cache=False)
        states = output.last_hidden_state[:, -targets.shape[1] :]
        size = max(1, LOGITS // (len(tokens) * self.model.config.get_text_config().vocab_size))
        losses = []
        for begin in range(0, targets.shape[1], size):
            part = targets[:, begin : begin + size]
            output.last_hidden_state = states[:, begin : begin + size]
            with patch.object(below, "forward", lambda *_, **__: output):
                logits = self.model(input_ids=tokens, use_cache=False).logits
            flat = logits.flatten(0, 1).float()
            loss = nn.functional.cross_entropy(flat, part.flatten(), ignore_index=UNSCORED, reduction="none")
            losses.append(loss.view(part.shape))
        return torch.cat(losses, dim=1)

    def digest(self) -> str:
        """Return the SHA-256 of the configuration and of all weights by name."""
        digest = hashlib.sha256(self.model.config.to_json_string().encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


class Positions:
    """The positions of a transformers model, with the interface that evaluation uses of a scheme."""

    def __init__(self, model: "PreTrainedModel", context_length: int) -> None:
        self.context_length = context_length
        self.config = model.config.get_text_config()
        # Each rotation in the model: the module that contains it, and its name there.
        self.places = [
            (module, name)
            for module in model.modules()
            for name, child in module.named_children()
            if hasattr(child, "inv_freq") and isinstance(getattr(child, "rope_type", None), str)
        ]
        self.trained = self.rotations
        self.max_length = _table_length(model, context_length)

    @property
    def rotations(self) -> list[Any]:
        """The rotation modules that the model uses now."""
        return [getattr(module, name) for module, name in self.places]

    @property
    def length_dependent(self) -> bool:
        """Whether a token's rotation depends on the number of tokens in the window."""
        return any(module.rope_type in BY_LENGTH for module in self.rotations)

    def check(self, methods: list[str]) -> None:
        """Raise ConfigError if these methods of `evaluate.rescale` cannot change the model's rotation."""
        if not methods:
            return
        if "drop" in methods:
            raise ConfigError("evaluate.rescale: drop is for models that poslab trained: leave it out")
        if not self.places:
            raise ConfigError(
                f"evaluate.rescale: {self.config.model_type} has no RoPE that transformers can rescale"
            )
        if scaled := {module.rope_type for module in self.trained} - {"default"}:
            raise ConfigError(
                f"evaluate.rescale: its rotation is rescaled already ({', '.join(sorted(scaled))})"
            )

    def rescale(self, rescaling: Rescaling | None) -> None:
        """Rotate with rescaled frequencies until the next call; None: as in the model's configuration."""
        for (module, name), trained in zip(self.places, self.trained, strict=True):
            setattr(module, name, trained if rescaling is None else self._rescaled(trained, rescaling))

    def begin(self) -> None:
        """Forget the longest window so far: transformers' dynamic NTK would scale shorter ones by it, too."""
        for module in self.rotations:
            if module.rope_type == "dynamic":
                module.max_seq_len_cached = module.original_max_seq_len
                module.inv_freq = module.original_inv_freq.clone()

    def _rescaled(self, trained: Any, rescaling: Rescaling) -> Any:
        config, factor = copy.deepcopy(self.config), rescaling.factor
        parameters = {**config.rope_parameters, "rope_type": ROPE_TYPES[rescaling.method]}
        if rescaling.method == "ntk":  # as poslab.model.rescaling.ntk
            width = 2 * trained.inv_freq.shape[0]
            parameters["rope_theta"] *= factor ** (width / (width - 2))
        elif rescaling.method == "dynamic":
            parameters["factor"] = 1.0
        else:
            parameters["factor"] = factor
        if rescaling.method == "yarn":
            parameters["original_max_position_embeddings"] = self.context_length
        config.rope_parameters, config.max_position_embeddings = parameters, self.context_length
        return type(trained)(config).to(trained.inv_freq.device)


def open_model(name: str, config: "PretrainedConfig", precision: str, length: int) -> TransformersModel:
    """Open the model in a folder or with a name on the hub; `config` is the result of `read_config`.

    `length` is the length that counts as trained, in tokens. Raise ConfigError if there are no safetensors,
    if weights are missing or if the model sees later tokens.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: sizes differ
        raise ConfigError(f"hf={plain(name)}: {plain(error)}") from None
    model, loading = loaded
    if missing := sorted(loading["missing_keys"]):  # a tied head is not among them
        more = f" and {len(missing) - 3} more" if missing[3:] else ""
        raise ConfigError(
            f"hf={plain(name)}: its weights lack {', '.join(missing[:3])}{more} of {type(model).__name__}"
        )
    if _sees_later_tokens(model.eval()):
        raise ConfigError(
            f"hf={plain(name)}: {type(model).__name__} sees later tokens: it is not a causal language model"
        )
    return TransformersModel(model, length)


def read_config(name: str) -> "PretrainedConfig":
    """Return the configuration in a folder or with a name on the hub.

    Raise ConfigError if there is none, or if transformers has no causal language model of its type.
    """
    try:
        import huggingface_hub
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig
        from transformers.utils import logging
    except ImportError:
        raise ConfigError(f"hf= needs transformers: {with_extra('transformers')}") from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    huggingface_hub.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not Path(name).is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise ConfigError(f"hf={plain(name)}: there is no such folder")
        print(f"{plain(name)} is not a folder here: looking it up on the Hugging Face hub")
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"hf={plain(name)}: {plain(error)}") from None
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigError(
            f"hf={plain(name)}: transformers has no causal language model of {config.model_type}"
        )
    return config


def trained_length(config: "PretrainedConfig") -> int:
    """Return the training length that a configuration names. Raise ConfigError if it names none."""
    sizes = config.get_text_config()
    length: Any = getattr(sizes, "max_position_embeddings", None) or getattr(sizes, "max_seq_len", None)
    if not length:
        raise ConfigError(
            f"the configuration of this {config.model_type} names no trained length: give lengths=TOKENS"
        )
    return int(length)


def tokenizer_path(name: str) -> Path | None:
    """Return the tokenizer.json of a model, or None. Raise ConfigError for a tokenizer in another format."""
    from transformers.utils.hub import cached_file

    path, config = (
        cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        for file in ("tokenizer.json", "tokenizer_config.json")
    )
    if path is None and config is not None:
        raise ConfigError(f"hf={plain(name)} has a tokenizer, but not the tokenizer.json that poslab needs")
    return None if path is None else Path(path)


@torch.no_grad()
def _sees_later_tokens(model: "PreTrainedModel") -> bool:
    return sees_later_tokens(
        lambda tokens: model(input_ids=tokens, use_cache=False).logits,
        model.config.get_text_config().vocab_size,
        rounding=0.05 if model.dtype == torch.bfloat16 else 1e-4,
    )


def _table_length(model: "PreTrainedModel", context_length: int) -> int | None:
    """Return the length past which a table of positions has no entry, or None without a table."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or context_length
    embedding = model.get_input_embeddings()
    parts = [part for part in model.modules() if part is not embedding and not hasattr(part, "make_weights")]
    tables = [part.weight for part in parts if isinstance(part, nn.Embedding)]
    tables += [table for part in parts for table in part.buffers(recurse=False) if table.ndim == 2]
    # Some tables have two more entries, for padding. Those with `make_weights` grow (XGLM).
    return limit if any(limit <= len(table) <= limit + 2 for table in tables) else None
