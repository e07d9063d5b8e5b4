"""A poslab model as a causal language model of transformers, for models that transformers lacks.

The modeling_poslab.py in an exported folder imports this module, so loading the folder needs poslab.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from poslab.config.checking import check
from poslab.config.request import Config
from poslab.model.gpt import build
from poslab.training.trained import settings_of


class PoslabConfig(PretrainedConfig):
    model_type = "poslab"

    def __init__(self, settings: Any = None, vocabulary: int = 256, **kwargs: Any) -> None:
        """`settings` are those of the run, and `vocabulary` is the number of tokens of its text."""
        self.settings = settings
        self.vocabulary = vocabulary
        super().__init__(**kwargs)


class PoslabForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = PoslabConfig
    base_model_prefix = "gpt"  # the names in the file are those of the GPT
    accepts_loss_kwargs = False  # the Trainer then divides the loss by the batches that it accumulates

    def __init__(self, config: PoslabConfig) -> None:
        super().__init__(config)
        with torch.device("cpu"):  # transformers would use "meta", where ALiBi's slopes have no values
            self.gpt = build(check(Config, settings_of(config.settings), ""), config.vocabulary)
        self.fixed = {name: buffer.clone() for name, buffer in self.gpt.named_buffers()}
        self.post_init()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Fill the buffers that transformers emptied and the file lacks; the weights are loaded."""
        for name, buffer in self.gpt.named_buffers():
            if name not in self.gpt.state_dict():
                buffer.copy_(self.fixed[name])

    def forward(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Int[Tensor, "B T"] | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Return the logits and, with `labels`, the mean loss in nats. Raise ValueError for other inputs."""
        if attention_mask is not None and not attention_mask.all():
            raise ValueError("poslab's models do not support padding: pass sequences of equal length")
        for name in ("position_ids", "output_attentions", "output_hidden_states"):
            if kwargs.get(name) is not None and kwargs[name] is not False:
                raise ValueError(f"poslab's models do not support {name}: leave it out")
        logits = self.gpt(input_ids)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(
        self, input_ids: Any, *_: Any, attention_mask: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Pass the whole text for each new token: keys and values are not cached."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}
