"""The software and hardware of a run for its record: the versions, the checkout and the machine.

Nothing here identifies the machine's owner: no host name, user, path or address of a repository.
"""

import os
import platform
import re
import subprocess
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from poslab.config.installation import PACKAGE
from poslab.config.registry import ENTRY_POINTS
from poslab.record.facts import Hardware, SourceState
from poslab.study.launch.machine import cores, machine_memory

GIT_SECONDS = 5.0  # a run waits no longer than this for git to answer
DECIDING = ("src", "conf")  # folders of the checkout; files elsewhere do not change a run
# Git takes no lock on the index, and runs no program from the repository's settings.
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
COMMIT = re.compile(r"^# branch\.oid ([0-9a-f]{40,64})$", re.MULTILINE)


def machine_facts() -> dict[str, Any]:
    """Return a record's facts about the software and the machine, except its GPUs."""
    return {
        "versions": describe_versions(),
        "source": source_state(),
        "hardware": hardware(),
        "device": f"cpu ({platform.machine()})",
    }


def gpu_facts() -> dict[str, Any]:
    """Return a record's facts about the GPUs. Call this in the run's process: it opens a context on them."""
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"hardware": hardware().updated(gpus=names), "device": torch.cuda.get_device_name()}


def source_state(root: Path = PACKAGE.parents[1]) -> SourceState | None:
    """Return the commit of the checkout that poslab runs from, and whether src/ or conf/ differ from it.

    Return None if poslab is installed rather than checked out, or if git is missing or does not answer.
    """
    if not (root / ".git").exists() or not (root / "src" / "poslab").is_dir():
        return None
    # Git's variables, set by a hook for instance, could point it to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [*GIT, "-C", str(root), "status", "--porcelain=v2", "--branch", "--", *DECIDING]
    try:
        answer = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    commit = COMMIT.search(answer)
    if commit is None:  # a repository without a commit
        return None
    return SourceState(commit=commit[1], modified=any(line[:1] != "#" for line in answer.splitlines()))


def hardware() -> Hardware:
    """Return the machine that this process runs on."""
    return Hardware(
        processor=_processor(),
        gpus=None,
        cores=len(cores()),
        memory_bytes=machine_memory().bytes,
        system=f"{platform.system()} {platform.release()}",
    )


def _processor() -> str:
    """Return the CPU's model, or its architecture, such as x86_64, if the system does not name the model."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()


@lru_cache  # reading them takes milliseconds
def describe_versions() -> dict[str, str]:
    """Return versions that may change a result's last digits; they are recorded, but not in the identity."""
    versions = {"python": platform.python_version()}
    parts = [entry.dist for group in ENTRY_POINTS.values() for entry in metadata.entry_points(group=group)]
    plugins = sorted({package.name for package in parts if package})
    for name in ("torch", "pytorch-lightning", "numpy", "tokenizers", "wandb", "poslab", *plugins):
        with suppress(metadata.PackageNotFoundError):  # W&B is optional; poslab may be on the path only
            versions[name] = metadata.version(name)
    return versions
