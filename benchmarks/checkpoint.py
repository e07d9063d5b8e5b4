"""Measure the memory for writing a checkpoint: python benchmarks/checkpoint.py

A state with `millions` million parameters in float32, with the two moments of AdamW, is created in memory,
written and read again. The peak memory of the process, minus its memory before, is printed as a ratio to the
size of the state.
"""

import resource
import sys
import tempfile
from pathlib import Path

import torch

from poslab.config.arguments import read_options, refuse
from poslab.config.errors import UserError
from poslab.training.checkpoints import STATE_FORMAT, newest_checkpoint, write_checkpoint

DEFAULTS = {"millions": "350", "tensors": "200", "folder": tempfile.gettempdir()}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # bytes, on Linux


def main(arguments: list[str]) -> None:
    try:
        chosen = DEFAULTS | read_options(arguments, list(DEFAULTS))
    except UserError as error:
        raise SystemExit(refuse("checkpoint.py", str(error))) from None
    count = int(chosen["tensors"])
    size = int(float(chosen["millions"]) * 1e6) // count
    before = peak()
    tensors = {f"{kind}/{number}": torch.ones(size) for kind in range(3) for number in range(count)}
    state = {"format": STATE_FORMAT, "identity": "benchmark", "global_step": 1, "state_dict": tensors}
    total = sum(tensor.nbytes for tensor in tensors.values())
    with tempfile.TemporaryDirectory(dir=chosen["folder"]) as folder:
        write_checkpoint(Path(folder), 1, state)
        print(f"{total / 2**30:.2f} GiB, written with a peak of {(peak() - before) / total:.3f} times that")
        state["state_dict"] = tensors = {}
        assert newest_checkpoint(Path(folder), "benchmark", print) is not None
        print(f"read, after its tensors were released, with {(peak() - before) / total:.3f} times that")


if __name__ == "__main__":
    main(sys.argv[1:])
