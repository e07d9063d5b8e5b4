"""Leases on the cores and GPUs of this machine.

A lease is a lock on files in a folder that all commands of a user on a machine share, so that two commands
never put two runs on the same core or GPU. TMPDIR moves the folder; a Slurm job has its own devices and its
own folder. The lock belongs to the open file: a process that inherits the descriptors of a lease has the
devices until it ends, even if the command that leased them was killed.
"""

import fcntl
import itertools
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from poslab.config.schema import ConfigError
from poslab.config.text import one_line
from poslab.record.locks import is_taken, take
from poslab.study.launch.devices import gpus
from poslab.study.launch.machine import cores

WAY_OUT = "set TMPDIR to a folder on a local disk"


@dataclass(frozen=True)
class Lease:
    """Devices that no other run gets while one of the descriptors is open in any process."""

    devices: tuple[str, ...]  # numbers of cores, or GPUs as CUDA_VISIBLE_DEVICES names them
    descriptors: tuple[int, ...]  # to be inherited by the process that uses the devices

    def release(self) -> None:
        """Close this process's descriptors; the devices are free once processes that inherited them end."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def lease_cores(count: int) -> Lease | None:
    """Lease `count` cores, or return None if fewer are free. Raise ConfigError without a safe folder."""
    return _lease(count, ((str(core), {f"core-{core}": fcntl.LOCK_EX}) for core in cores()))


def lease_gpus(count: int, runs_per_gpu: int) -> Lease | None:
    """Lease a share of `count` GPUs with at most `runs_per_gpu` runs each; return None if fewer are free.

    With `runs_per_gpu=1`, the run gets GPUs for itself. Otherwise commands may share GPUs, even if they allow
    different numbers of runs. Raise ConfigError without a safe folder.
    """
    sharing = fcntl.LOCK_EX if runs_per_gpu == 1 else fcntl.LOCK_SH
    files = {name: f"gpu-{quote(name, safe='')}" for name in gpus()}
    return _lease(
        count,
        (
            (name, {files[name]: sharing, f"{files[name]}-slot-{slot}": fcntl.LOCK_EX})
            for slot, name in itertools.product(range(runs_per_gpu), files)  # emptier GPUs first
        ),
    )


def holders(cuda: bool) -> list[str]:
    """Return the process and the working directory of each known command that has leased GPUs, or cores."""
    commands: dict[str, None] = {}
    for path in sorted(_folder().glob("gpu-*" if cuda else "core-*")):
        if is_taken(path):
            with suppress(OSError, ValueError, TypeError):
                process, place = json.loads(path.read_text())
                commands[f"process {int(process)} in {one_line(place, 200)}"] = None
    return list(commands)


def _lease(count: int, devices: Iterable[tuple[str, dict[str, int]]]) -> Lease | None:
    """Lease the first `count` devices with free locks, or none; each has its locks, as file name and kind."""
    leased: dict[str, list[int]] = {}
    folder = _folder()
    for name, locks in devices:
        if len(leased) < count and name not in leased and (held := _lock(folder, locks)):
            leased[name] = held
    lease = Lease(tuple(leased), tuple(itertools.chain.from_iterable(leased.values())))
    if len(leased) == count:
        return lease
    lease.release()
    return None


def _lock(folder: Path, locks: Mapping[str, int]) -> list[int]:
    """Take the locks and return their descriptors; return an empty list if one of the locks is taken."""
    descriptors = []
    for name, kind in locks.items():
        path = folder / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        descriptors.append(descriptor)
        try:
            take(descriptor, kind | fcntl.LOCK_NB, path, WAY_OUT)
        except BlockingIOError:
            for taken in descriptors:
                os.close(taken)
            return []
        os.utime(descriptor)  # so that systems that remove old files from /tmp do not remove the lock
        with suppress(OSError):  # a full disk or a removed directory: the text is only for messages
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps([os.getpid(), os.getcwd()]).encode(), 0)
    return descriptors


def _folder() -> Path:
    """Return the folder of the locks. Raise ConfigError if other users can access it, which is not safe."""
    job = os.environ.get("SLURM_JOB_ID")
    name = f"poslab-{os.getuid()}-slurm-{quote(job, safe='')}" if job else f"poslab-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{folder} must be a folder that only you can access: remove it, or set TMPDIR to another folder"
        )
    return folder
