"""The memory of this machine and of its GPUs, in bytes: how much a run can have, and whether it ran out.

A process may use the machine's memory, or less where a cgroup (of a container, a Slurm job, systemd) or a
limit of the shell (`ulimit -v`) says so. Swap does not count: training in it takes hours.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from poslab.study.launch.devices import cuda_available

NO_LIMIT = 2**60  # cgroups of version 1 write about 2^63 where there is none


@dataclass(frozen=True)
class Memory:
    """The memory that processes can have in all, and its source for a sentence: `this machine has`."""

    bytes: int
    holder: str


def machine_memory(root: Path = Path("/")) -> Memory:
    """Return the memory of all processes of this machine or cgroup; `root` is the folder of its files."""
    memory = Memory(_meminfo(root).get("MemTotal", _physical_memory()), "this machine has")
    limits = [Memory(limit, "this process's cgroup allows") for limit in _cgroup_limits(root)]
    return min([memory, *limits, *_process_limits()], key=lambda memory: memory.bytes)


def free_memory() -> int:
    """Return the bytes that are unused, or that the system would free at once."""
    return min(_meminfo(Path("/")).get("MemAvailable", NO_LIMIT), machine_memory().bytes)


def gpu_memory() -> list[Memory]:
    """Return the memory of each GPU that this process may use."""
    if not cuda_available():
        return []
    import torch

    return [
        Memory(torch.cuda.get_device_properties(index).total_memory, "the GPU has")
        for index in range(torch.cuda.device_count())
    ]


def size_text(size: float) -> str:
    """Return `1.5 GiB`, `3,072 GiB`."""
    amount = size / 2**30
    return f"{amount:,.0f} GiB" if amount >= 100 else f"{amount:.3g} GiB"


def lacks_memory(error: BaseException) -> bool:
    """Return whether the message is that memory ran out, for which PyTorch has no class of errors."""
    words = str(error).lower()
    overflow = "storage size calculation overflowed" in words
    return isinstance(error, MemoryError) or "can't allocate memory" in words or overflow


def out_of_memory_kills(root: Path = Path("/")) -> int:
    """Return how many processes of this cgroup, else of the machine, were killed for lack of memory.

    0 where the kernel does not count them. Programs that watch the memory themselves are not counted.
    """
    counters = [
        folder / name for folder in _cgroups(root) for name in ("memory.events", "memory.oom_control")
    ]
    for path in (*counters, root / "proc/vmstat"):
        if match := re.search(r"^oom_kill (\d+)$", _text(path), re.MULTILINE):
            return int(match[1])
    return 0


@contextmanager
def limited_to(memory: int) -> Iterator[None]:
    """Let this process allocate only `memory` more bytes: a larger request fails, not the whole process."""
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(_text(Path("/proc/self/statm")).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    allowed = [limit for limit in (used + memory, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(allowed), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _meminfo(root: Path) -> dict[str, int]:
    lines = re.findall(r"^(\w+): +(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(number) * 1024 for name, number in lines}


def _process_limits() -> Iterator[Memory]:
    with suppress(ImportError):  # Windows has none
        import resource

        for name, holder in (("RLIMIT_AS", "ulimit -v allows"), ("RLIMIT_DATA", "ulimit -d allows")):
            soft = resource.getrlimit(getattr(resource, name))[0]
            if soft != resource.RLIM_INFINITY:
                yield Memory(soft, holder)


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits of the process's cgroup and of all above it."""
    for folder in _cgroups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of versions 2 and 1
            text = _text(folder / name).strip()
            if text.isdigit() and int(text) < NO_LIMIT:
                yield int(text)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's memory cgroup and of those above it, the innermost first.

    In a container the path may be that outside, and only the uppermost folder exists.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mounted = root / "sys/fs/cgroup" / ("memory" if controllers else "")  # version 2 names no controllers
        inside = Path(path.lstrip("/"))
        yield from (mounted / folder for folder in (inside, *inside.parents))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
