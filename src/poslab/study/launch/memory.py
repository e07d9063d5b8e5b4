"""The memory of this machine and of its GPUs: how much a run can ever have, and whether it ran out.

What a process may use is the machine's memory and swap, or less where a cgroup (of a container, a Slurm job
or systemd) or a limit of the shell (`ulimit -v`) says so. All numbers are bytes.
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
    """So much that processes can have in all, and who says so, for a sentence: `this machine has`."""

    bytes: int
    holder: str


def machine_memory(root: Path = Path("/")) -> Memory:
    """What the processes of this machine or cgroup can have together; `root` is where its files lie."""
    facts = _meminfo(root)
    swap = facts.get("SwapTotal", 0)
    memory = Memory(facts.get("MemTotal", _physical_memory()) + swap, "this machine has")
    limits = [Memory(limit, "this process's cgroup allows") for limit in _cgroup_limits(root, swap)]
    return min([memory, *limits, *_process_limits()], key=lambda each: each.bytes)


def free_memory(root: Path = Path("/")) -> int:
    """What nobody uses now, or the system would give up at once."""
    facts = _meminfo(root)
    free = facts.get("MemAvailable", NO_LIMIT) + facts.get("SwapFree", 0)
    return min(free, machine_memory(root).bytes)


def gpu_memory() -> list[Memory]:
    """Of each GPU that this process may use."""
    if not cuda_available():
        return []
    import torch

    return [
        Memory(torch.cuda.get_device_properties(index).total_memory, "the GPU has")
        for index in range(torch.cuda.device_count())
    ]


def size_text(size: float) -> str:
    """1.5 GiB, 3,072 GiB."""
    amount = size / 2**30
    return f"{amount:,.0f} GiB" if amount >= 100 else f"{amount:.3g} GiB"


def lacks_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out, or that no machine has so much: PyTorch has no class for it."""
    words = str(error).lower()
    overflow = "storage size calculation overflowed" in words
    return isinstance(error, MemoryError) or "can't allocate memory" in words or overflow


def out_of_memory_kills(root: Path = Path("/")) -> int:
    """How many processes of this one's cgroup, else of the machine, the kernel has killed for lack of memory.

    0 where the kernel does not count them. Programs that watch the memory themselves are not counted.
    """
    counters = [root / "proc/vmstat"]
    for folder, version in _cgroups(root):
        counters.append(folder / ("memory.events" if version == 2 else "memory.oom_control"))
    for path in reversed(counters):  # the innermost first
        if match := re.search(r"^oom_kill (\d+)$", _text(path), re.MULTILINE):
            return int(match[1])
    return 0


@contextmanager
def limited_to(memory: int) -> Iterator[None]:
    """Let this process allocate so many bytes more: a larger request fails, instead of the whole process."""
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


def _cgroup_limits(root: Path, swap: int) -> Iterator[int]:
    """Of the process's cgroup and all above it: of memory and swap together."""
    for folder, version in _cgroups(root):
        if version == 2:
            limit = _number(folder / "memory.max")
            allowed = _number(folder / "memory.swap.max")
            if limit is not None:
                yield limit + (swap if allowed is None else min(swap, allowed))
        else:
            limit = _number(folder / "memory.limit_in_bytes")
            both = _number(folder / "memory.memsw.limit_in_bytes")
            if limit is not None:
                yield limit + swap
            if both is not None:
                yield both


def _cgroups(root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's memory cgroup and of those above it, each with its version."""
    paths = {  # of the process in each hierarchy, by its controllers; version 2 names none
        controllers: path
        for line in _text(root / "proc/self/cgroup").splitlines()
        for _, controllers, path in [line.split(":", 2)]
    }
    for line in _text(root / "proc/self/mountinfo").splitlines():
        own, _, of_system = line.partition(" - ")
        kind, _, options = [*of_system.split(), "", "", ""][:3]
        if kind == "cgroup2":
            version, path = 2, paths.get("")
        elif kind == "cgroup" and "memory" in options.split(","):
            version, path = 1, next((paths[key] for key in paths if "memory" in key.split(",")), None)
        else:
            continue
        if path is None:
            continue
        mounted, place = own.split()[3:5]
        inside = Path(path.removeprefix(mounted)).parts if path.startswith(mounted) else Path(path).parts
        folder = root / place.lstrip("/")
        yield folder, version
        for part in inside:
            if part not in ("/", ".."):
                folder = folder / part
                yield folder, version


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no such limit."""
    text = _text(path).strip()
    return int(text) if text.isdigit() and int(text) < NO_LIMIT else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
