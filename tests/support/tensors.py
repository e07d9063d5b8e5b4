"""The sizes of tensors that code creates."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that an operation returns."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = function(*args, **(kwargs or {}))
        for value in tree_leaves(returned):
            if isinstance(value, torch.Tensor):
                self.numbers = max(self.numbers, value.untyped_storage().nbytes() // value.element_size())
        return returned
