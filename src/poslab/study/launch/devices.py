"""The GPUs of this machine, the features that PyTorch supports on it, and the memory that a run has used.

PyTorch is imported only by the functions that need it, since that takes seconds.
"""

import ctypes
import itertools
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from poslab.study.launch.machine import Memory

DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")  # of Nvidia, Jetson, WSL and AMD


def gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES: numbers, UUIDs or MIG names."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        if not cuda_available():  # imports PyTorch, which is slow, only if there is a driver
            return ()
        import torch

        return tuple(str(index) for index in range(torch.cuda.device_count()))
    names = (name.strip() for name in visible.split(","))
    # CUDA reads the list up to the first entry that is not a device, such as -1.
    return tuple(dict.fromkeys(itertools.takewhile(lambda name: name and name[0] != "-", names)))


def cuda_available() -> bool:
    """Return whether PyTorch sees a CUDA device.

    PyTorch takes seconds to import, so it is not imported if there is no trace of a driver or a device.
    """
    if "torch" not in sys.modules and not _has_driver():
        return False
    import torch

    return torch.cuda.is_available()


def bfloat16_available() -> bool:
    """Return whether the CUDA device supports bfloat16 in hardware."""
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _has_driver() -> bool:
    """Return whether this machine may have GPUs that PyTorch could use: any trace of them counts."""
    if sys.platform != "linux" or any(map(os.path.exists, DRIVERS)):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")  # the library that PyTorch's CUDA runtime loads
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, on its GPU if it uses one, else on the machine."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def cpu_has_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16; without them PyTorch converts, which is slow."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))  # bf16: ARM


def gpu_memory() -> list[Memory]:
    """Return the total memory of each GPU that this process may use."""
    if not cuda_available():
        return []
    import torch

    return [
        Memory(torch.cuda.get_device_properties(index).total_memory, "the GPU has")
        for index in range(torch.cuda.device_count())
    ]


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let PyTorch use `count` threads in the block, or as many as before if `count` is None."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
