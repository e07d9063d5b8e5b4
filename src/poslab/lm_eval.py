"""Trained models in EleutherAI's lm-evaluation-harness: `python -m poslab.lm_eval --model poslab ...`.

    python -m poslab.lm_eval --model poslab --model_args run=runs/STUDY/RUN --tasks TASK

This is the harness's own command with one more model, which it cannot find by itself. `max_length=N` is the
longest window in tokens, by default the training length; longer contexts lose their beginning.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from poslab.config.checking import check
from poslab.config.installation import with_extra
from poslab.config.request import Config
from poslab.config.schema import ConfigError
from poslab.library.weights import check_next_token, run_directory, tokenizer_json
from poslab.training.trained import read_trained_model

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows
except ModuleNotFoundError as error:
    if not str(error.name).startswith("lm_eval"):
        raise
    missing = f"poslab.lm_eval needs lm-eval: {with_extra('eval', 'python -m poslab.lm_eval')}"
    if __name__ == "__main__":
        sys.exit(f"poslab: {missing}")
    raise ImportError(missing) from None

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


@register_model("poslab")
class PoslabLM(TemplateLM):  # type: ignore[misc]
    """The model of a finished run, as a model of the harness."""

    def __init__(
        self, run: str, max_length: int | None = None, device: str | None = None, **kwargs: Any
    ) -> None:
        """Load the run in a directory. Raise ConfigError if it is unfinished or does not predict next tokens.

        The harness's batch sizes have no effect.
        """
        from tokenizers import Tokenizer

        super().__init__()
        if unknown := kwargs.keys() - {"batch_size", "max_batch_size"}:
            raise ConfigError(f"model_args takes run and max_length, not {', '.join(sorted(unknown))}")
        directory = run_directory(run)
        trained = read_trained_model(directory)
        config = check(Config, trained.settings, "")
        check_next_token(config.objective)
        # The harness requests CUDA by default, even on machines without it.
        usable = device is not None and (torch.cuda.is_available() or not str(device).startswith("cuda"))
        self._device = torch.device(str(device) if usable else "cpu")
        self.gpt = trained.gpt(config).to(self._device)
        self.max_length = config.context_length if max_length is None else int(max_length)
        if self.max_length < 1:
            raise ConfigError(f"max_length={max_length} must be at least 1")
        limit = self.gpt.scheme.max_length
        if limit is not None and self.max_length > limit:
            raise ConfigError(f"max_length={max_length}: the positional scheme is defined up to {limit}")
        self.encoder = Tokenizer.from_buffer(tokenizer_json(directory, config))
        in_bytes = config.data.get("vocabulary") in ("bytes", None)
        self.separator = 0 if in_bytes else self.gpt.embedding.num_embeddings - 1

    @property
    def eot_token_id(self) -> int:
        """The token that separates documents; it is also the context of a request without one."""
        return self.separator

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the tokens of a text; there are no special tokens to add."""
        return list(self.encoder.encode(string, add_special_tokens=False).ids)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        answers = []
        for pair, context, continuation in requests:
            answer = self._scored(context, continuation)
            answers.append(answer)
            self.cache_hook.add_partial("loglikelihood", pair, answer)
        return answers

    def loglikelihood_rolling(self, requests: "list[Instance]", disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text in nats, in windows of the longest length."""
        totals = []
        for request in requests:
            (text,) = request.args
            windows = get_rolling_token_windows(self.tok_encode(text), self.separator, self.max_length, 1)
            scores = (self._scored(inputs[: len(inputs) - len(tail) + 1], tail) for inputs, tail in windows)
            totals.append(sum(total for total, _ in scores))
        return totals

    def generate_until(self, requests: "list[Instance]", disable_tqdm: bool = False) -> list[str]:
        """Return the greedy continuation of each context, up to one of the strings that end it."""
        answers = []
        for request in requests:
            context, arguments = request.args
            options = normalize_gen_kwargs(arguments)
            if options["do_sample"]:
                raise ConfigError("poslab generates the likeliest tokens only: leave do_sample out")
            tokens, text = self.tok_encode(context) or [self.separator], ""
            written: list[int] = []
            while len(written) < options["max_gen_toks"] and not any(end in text for end in options["until"]):
                window = torch.tensor([[*tokens, *written][-self.max_length :]], device=self._device)
                with torch.inference_mode():
                    written.append(int(self.gpt(window, 1)[0, -1].argmax()))
                if written[-1] == self.separator:
                    break
                text = self.encoder.decode(written)
            for end in options["until"]:
                text = text.split(end)[0]
            answers.append(text)
        return answers

    def _scored(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        """Return the continuation's log-likelihood in nats, and whether each of its tokens was the likeliest.

        Half a window of the continuation is scored at a time, with as much context as fits into the window.
        """
        whole, size = [*context, *continuation], max(1, self.max_length // 2)
        total, greedy = 0.0, True
        for begin in range(len(context), len(whole), size):
            targets = torch.tensor(whole[begin : begin + size], device=self._device)
            end = begin + len(targets) - 1
            window = torch.tensor([whole[max(0, end - self.max_length) : end]], device=self._device)
            with torch.inference_mode():
                logits = self.gpt(window, len(targets))[0].double()
            total -= float(cross_entropy(logits, targets, reduction="sum"))
            greedy &= bool((logits.argmax(dim=-1) == targets).all())
        return total, greedy


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except ConfigError as error:
        sys.exit(f"poslab: {error}")
