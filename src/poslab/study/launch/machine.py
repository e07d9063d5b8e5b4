"""The cores of this machine, its memory in bytes, and whether an error means that memory ran out.

A process may use the machine's memory, or less if there is a cgroup (of a container, a Slurm job, systemd) or
a limit of the shell (`ulimit -v`). Swap does not count, since training in swap takes hours.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NO_LIMIT = 2**60  # version 1 of cgroups writes about 2^63 if there is no limit


def cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


class Memory(NamedTuple):
    """The total memory that processes can have, and the start of a sentence on it: `this machine has`."""

    bytes: int
    holder: str


def machine_memory(root: Path = Path("/")) -> Memory:
    """Return the memory that the machine, a cgroup and the shell allow; `root` contains proc/ and sys/."""
    limits = [Memory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "this machine has")]
    limits += [Memory(limit, "this process's cgroup allows") for limit in _cgroup_limits(root)]
    shell_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if shell_limit != resource.RLIM_INFINITY:
        limits.append(Memory(shell_limit, "ulimit -v allows"))
    return min(limits)


def forget_peak_memory() -> None:
    """Reset the peak that `peak_memory` returns, since the process may have run other runs before."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # a system without this file
        Path("/proc/self/clear_refs").write_text("5")


def size_text(size: float) -> str:
    """Return a number of bytes as text: `1.5 GiB`, `3,072 GiB`."""
    amount = size / 2**30
    return f"{amount:,.0f} GiB" if amount >= 100 else f"{amount:.3g} GiB"


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. PyTorch has no class for it, only a message."""
    words = str(error).lower()
    overflow = "storage size calculation overflowed" in words
    return isinstance(error, MemoryError) or "can't allocate memory" in words or overflow


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits of the process's memory cgroup and of its parents.

    In a container, the path may be the one outside it, and only the topmost folder exists.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        # Version 2 does not name controllers.
        mounted = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        inside = Path(path.lstrip("/"))
        for folder in (inside, *inside.parents):
            text = _text(
                mounted / folder / ("memory.limit_in_bytes" if controllers else "memory.max")
            ).strip()
            if text.isdigit() and int(text) < NO_LIMIT:
                yield int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
