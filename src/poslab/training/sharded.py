"""Training with every parameter split among the processes: FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

The parameters of a block are gathered while it runs; gradients and the optimizer's moments stay split. For a
checkpoint, tensors are gathered one after another, so a run can resume on any number of devices.
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
    """Split each parameter among the processes, in place. The parameters of a block are gathered together."""
    processes = mesh["data_parallel"]
    for block in gpt.blocks:
        fully_shard(block, mesh=processes)
    fully_shard(gpt, mesh=processes)


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor gathered from all processes; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def take_weights(gpt: GPT, sharded: GPT) -> None:
    """Copy the weights of the sharded copy into `gpt`, and the names of the kernels that ran.

    Copy untrained random tensors too: a resumed copy has them from the checkpoint.
    """
    with torch.no_grad():
        for weight, trained in zip(gpt.state_dict().values(), sharded.state_dict().values(), strict=True):
            weight.copy_(whole(trained))
    for block, ran in zip(gpt.blocks, sharded.blocks, strict=True):
        block.attention.kernel = ran.attention.kernel  # type: ignore[union-attr]


class Sharded(ModelParallelStrategy):
    """Lightning's strategy with checkpoints as under DDP: unsharded tensors, in the first process only."""

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
        """Return the state with unsharded tensors, on the CPU of the first process; None in the others."""

        def gathered(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            tensor = whole(value)
            return tensor.cpu() if self.is_global_zero else None

        return tree_map(gathered, state)


def _part(value: Any, like: Tensor) -> Any:
    """Return this process's part of an unsharded tensor, split as `like`; other values unchanged."""
    if not (isinstance(value, Tensor) and isinstance(like, DTensor) and value.shape == like.shape):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
