"""The Lightning module: the loss, the optimizer and the learning rate of a GPT."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import pytorch_lightning as lightning
import torch
from jaxtyping import Float
from torch import Tensor

from poslab.config.schema import TrainerOptions
from poslab.model.gpt import GPT, named_stream
from poslab.model.kernels.matmul import Linear
from poslab.training.batches import Batch
from poslab.training.muon import Muon

BETA1 = 0.9
CHECKPOINTED = ("nll_sum", "token_count", "gradient_norm_sum", "gradient_norm_count", "batches")
FINAL_SHARE = 0.1  # share of the learning rate at the end of a cosine
DECAY_SHARE = 0.2  # share of the steps in the linear decay of a warm-up, stable, decay schedule


class LanguageModel(lightning.LightningModule):
    """The mean cross entropy over the targets of each step. It logs nothing: loop.py reads its sums."""

    def __init__(
        self,
        gpt: GPT,
        options: TrainerOptions,
        seed: int,
        first_step: int = 0,
    ) -> None:
        """Begin at step `first_step`, Lightning's step 0. The step seeds the positions of some schemes."""
        super().__init__()
        self.gpt = gpt
        self.options = options
        self.seed = seed
        self.first_step = first_step
        self.last_loss = torch.zeros(())  # of the last microbatch, in nats per token
        # Sums since the last row of metrics.csv, and the digest of all batches.
        self.nll_sum = torch.zeros((), dtype=torch.float64)
        self.token_count = 0
        self.gradient_norm_sum = torch.zeros(())
        self.gradient_norm_count = 0
        self.batches = ""

    def configure_model(self) -> None:
        if self.options.strategy == "fsdp":
            from poslab.training.sharded import shard

            assert self.device_mesh is not None
            shard(self.gpt, self.device_mesh)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sums"] = {name: getattr(self, name) for name in CHECKPOINTED}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name in CHECKPOINTED:
            setattr(self, name, checkpoint["sums"][name])

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        # A digest of the batches trained on: it changes if a crash leads to a repeated or skipped batch.
        self.batches = hashlib.sha256(self.batches.encode() + batch.digest).hexdigest()
        # Schemes that draw positions use only the seed and the step, so all microbatches have the same.
        step = self.first_step + index // self.options.accumulate
        stream = named_stream(self.seed, f"positions/{step}")
        positions = self.gpt.scheme.place(batch.tokens.shape[1], stream)
        if batch.tokens.is_cuda:  # a plain copy would wait for the GPU
            positions = positions.pin_memory().to(batch.tokens.device, non_blocking=True)
        loss = self.gpt(batch.tokens, positions=positions, targets=batch.targets)
        self.last_loss = loss.detach()
        nll = self.last_loss.double() * batch.scored
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # Reduced at every step, since process 0 writes the state for all processes.
            torch.distributed.all_reduce(nll)
        self.nll_sum = self.nll_sum.to(loss.device) + nll
        self.token_count += batch.scored_by_all
        return loss * batch.weight

    def configure_optimizers(self) -> Any:
        """Return AdamW (Loshchilov and Hutter 2019) or Muon with parameter groups, and a schedule by steps.

        Weight decay applies to matrices, not to vectors or to scheme parameters, which have their own rates.
        Muon updates the matrices of the blocks, AdamW all other parameters.
        """
        rates = self.gpt.scheme.rates()
        hidden = self._hidden_matrices() if self.options.optimizer == "muon" else {}
        elsewhere = {*rates, *hidden}
        shared = [parameter for parameter in self.gpt.parameters() if parameter not in elsewhere]
        groups = [
            {"params": [p for p in shared if p.ndim >= 2], "weight_decay": self.options.weight_decay},
            {"params": [p for p in shared if p.ndim < 2], "weight_decay": 0.0},
        ]
        for rate in sorted(set(rates.values())):
            multiple = rate * self.options.scheme_rate
            groups.append(
                {
                    "params": [parameter for parameter, own_rate in rates.items() if own_rate == rate],
                    "weight_decay": 0.0,
                    "lr": multiple * self.options.learning_rate,
                }
            )
        adamw = torch.optim.AdamW(
            groups, lr=self.options.learning_rate, betas=(BETA1, self.options.beta2), fused=True
        )
        optimizer = Muon(hidden, self.options.weight_decay, adamw) if hidden else adamw
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate_share(self.options))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _hidden_matrices(self) -> dict[Tensor, tuple[int, ...]]:
        """Return the matrices of the blocks; for a stack of matrices, with the number of rows of each."""
        layers = [module for module in self.gpt.modules() if isinstance(module, Linear)]
        rows: dict[Tensor, tuple[int, ...]] = {layer.weight: layer.rows for layer in layers}
        matrices = [parameter for parameter in self.gpt.blocks.parameters() if parameter.ndim == 2]
        return {parameter: rows.get(parameter, ()) for parameter in matrices}

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.gpt.parameters(), self.options.clip_norm)
        if self.options.strategy == "fsdp":
            norm = norm.full_tensor()  # type: ignore[attr-defined]
        self.gradient_norm_sum = self.gradient_norm_sum.to(norm.device) + norm.detach()
        self.gradient_norm_count += 1

    def pop_metrics(self) -> dict[str, float]:
        """Return the summed loss, the tokens and the mean gradient norm since the last call."""
        sums = {
            "train_nll": self.nll_sum.item(),
            "train_tokens": self.token_count,
            "gradient_norm": self.gradient_norm_sum.item() / self.gradient_norm_count,
        }
        self.nll_sum, self.token_count = torch.zeros_like(self.nll_sum), 0
        self.gradient_norm_sum, self.gradient_norm_count = torch.zeros_like(self.gradient_norm_sum), 0
        return sums


def learning_rate_share(options: TrainerOptions) -> Callable[[int], float]:
    """Return the factor for `learning_rate` as a function of the step (from 0): warm-up, then schedule."""
    after_warmup = SCHEDULES[options.schedule]

    def share(step: int) -> float:
        if step < options.warmup_steps:
            return (step + 1) / options.warmup_steps
        return after_warmup(step - options.warmup_steps, max(1, options.max_steps - options.warmup_steps))

    return share


def _cosine(step: int, steps: int) -> float:
    return FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))


def _constant(step: int, steps: int) -> float:
    return 1.0


def _warmup_stable_decay(step: int, steps: int) -> float:
    """Return 1, then decay linearly to 0 in the last fifth (Hägele et al. 2024, arXiv 2405.18392)."""
    return max(0.0, min(1.0, (steps - step) / (DECAY_SHARE * steps)))


SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "cosine": _cosine,
    "constant": _constant,
    "wsd": _warmup_stable_decay,
}
