"""Training in which each process has a part of every parameter: FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

The parameters of a block are gathered while it runs; gradients and the optimizer's moments stay in parts. A
checkpoint has them whole, one after another, so it is that of a run on any number of devices.
"""

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from poslab.model.gpt import GPT


def shard(gpt: GPT, mesh: DeviceMesh) -> None:
    """Split each parameter among the processes, in place: those of a block are gathered together."""
    processes = mesh["data_parallel"]
    for block in gpt.blocks:
        fully_shard(block, mesh=processes)
    fully_shard(gpt, mesh=processes)


def whole(tensor: Tensor) -> Tensor:
    """Return the tensor of all processes; all must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def take_weights(gpt: GPT, sharded: GPT) -> None:
    """Give `gpt` the weights of its sharded copy, and the names of the kernels that it ran.

    Also what was drawn and is not trained: a copy that has resumed has it from the checkpoint.
    """
    with torch.no_grad():
        for weight, trained in zip(gpt.state_dict().values(), sharded.state_dict().values(), strict=True):
            weight.copy_(whole(trained))
    for block, ran in zip(gpt.blocks, sharded.blocks, strict=True):
        block.attention.kernel = ran.attention.kernel  # type: ignore[union-attr]


class Sharded(ModelParallelStrategy):
    """Lightning's strategy, with the checkpoints of DDP: whole tensors, only in the first process."""

    lightning_restore_optimizer = True

    def __init__(self, processes: int) -> None:
        super().__init__(processes, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return self._gathered(self.model.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return self._gathered(optimizer.state_dict())

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        return self.checkpoint_io.load_checkpoint(checkpoint_path, weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        parts = self.model.state_dict()
        for name, tensor in checkpoint["state_dict"].items():
            parts[name].copy_(_part(tensor, parts[name]))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            moments = {
                number: {name: _part(value, parameters[number]) for name, value in values.items()}
                for number, values in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": moments})

    def _gathered(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state with whole tensors, in the memory of the first process's processor."""

        def gathered(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            tensor = whole(value)
            return tensor.cpu() if self.is_global_zero else None

        return tree_map(gathered, state)


def _part(value: Any, like: Tensor) -> Any:
    """Return this process's part of a whole tensor, as that of a parameter; other values as they are."""
    if not (isinstance(value, Tensor) and isinstance(like, DTensor) and value.shape == like.shape):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
