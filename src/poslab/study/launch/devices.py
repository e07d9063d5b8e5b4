"""What this machine lends to a process, its GPUs and its cores, and leases on them.

A lease is a lock on files in a folder that all commands of one user on one machine share, so that two of them
never put two runs on one core or one GPU by accident (TMPDIR moves the folder; a Slurm job, whose devices are
its own already, has one to itself). The lock belongs to the open file: a process that inherits a lease's
descriptors keeps the devices until it ends, even where the command that leased them was killed.
"""

import fcntl
import itertools
import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from poslab.config.schema import ConfigError


@dataclass(frozen=True)
class Lease:
    """Devices that nobody else has while one of the descriptors is open, here or in a process of ours."""

    devices: tuple[str, ...]  # cores by number, or GPUs as CUDA_VISIBLE_DEVICES names them
    descriptors: tuple[int, ...]  # to be inherited by whoever uses the devices

    def release(self) -> None:
        """Close our descriptors: the devices are free once those who inherited them have ended."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def gpus() -> tuple[str, ...]:
    """The GPUs that we may use, as CUDA_VISIBLE_DEVICES names them: numbers, UUIDs or MIG names."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch  # slow to import, and not needed where the variable says it all

        return tuple(str(index) for index in range(torch.cuda.device_count()))
    names = (name.strip() for name in visible.split(","))
    # CUDA itself reads the list up to the first entry that is no device, such as -1.
    return tuple(dict.fromkeys(itertools.takewhile(lambda name: name and name[0] != "-", names)))


def peak_memory() -> int:
    """Bytes that this process has held at most: of its GPU where it uses one, else of the machine."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def cores() -> tuple[int, ...]:
    """The numbers of the cores that we may use, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def lease_cores(count: int) -> Lease | None:
    """`count` cores, or None where fewer are free now. Raises ConfigError without a safe folder."""
    held: dict[str, list[int]] = {}
    with _one_at_a_time() as folder:
        for core in cores():
            if len(held) < count and (locks := _lock((folder / f"core-{core}", fcntl.LOCK_EX))):
                held[str(core)] = locks
    return _all_or_none(held, count)


def lease_gpus(count: int, runs_per_gpu: int) -> Lease | None:
    """`count` GPUs, each for a run of `runs_per_gpu` on it, or None where fewer are free now.

    A run that wants a GPU alone (1) gets one that nobody uses, and nobody joins it there; those that share
    may differ in how many they allow. Raises ConfigError without a safe folder.
    """
    sharing = fcntl.LOCK_EX if runs_per_gpu == 1 else fcntl.LOCK_SH
    held: dict[str, list[int]] = {}
    with _one_at_a_time() as folder:
        for slot, name in itertools.product(range(runs_per_gpu), gpus()):  # emptier GPUs first
            if len(held) < count and name not in held:
                gpu = folder / f"gpu-{quote(name, safe='')}"
                own = gpu.with_name(f"{gpu.name}-slot-{slot}")
                if locks := _lock((gpu, sharing), (own, fcntl.LOCK_EX)):
                    held[name] = locks
    return _all_or_none(held, count)


def _all_or_none(held: dict[str, list[int]], count: int) -> Lease | None:
    lease = Lease(tuple(held), tuple(itertools.chain.from_iterable(held.values())))
    if len(held) == count:
        return lease
    lease.release()
    return None


def _lock(*wanted: tuple[Path, int]) -> list[int]:
    """Descriptors that hold the locks, or none where one of them is taken."""
    descriptors = []
    for path, kind in wanted:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            for taken in descriptors:
                os.close(taken)
            return []
        os.utime(descriptor)  # systems clear old files out of /tmp, and would give the lock away
    return descriptors


@contextmanager
def _one_at_a_time() -> Iterator[Path]:
    """The folder of the locks, while no other command takes any: else two could keep each other short."""
    folder = _folder()
    door = os.open(folder / "door", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(door, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(door)


def _folder() -> Path:
    """The folder of the locks, ours alone: in a folder of another user they would mean nothing."""
    job = os.environ.get("SLURM_JOB_ID")
    name = f"poslab-{os.getuid()}-slurm-{quote(job, safe='')}" if job else f"poslab-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is not a folder of yours alone: remove it, or set TMPDIR to another")
    return folder
