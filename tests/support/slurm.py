"""A Slurm cluster of this one machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.commands import ROOT

CLUSTER = ROOT / "tests" / "slurm" / "cluster.sh"


def start_cluster(folder: Path, tracking: str = "linuxproc") -> None:
    if shutil.which("slurmctld") is None or os.getuid() != 0:
        pytest.skip("needs root, and Slurm: tests/slurm/cluster.sh install")
    started = subprocess.run(
        [CLUSTER, "start", folder, tracking], capture_output=True, text=True, check=False, timeout=120
    )
    if "control groups" in started.stderr:
        pytest.skip(started.stderr.strip())
    assert started.returncode == 0, started.stderr
    assert started.stdout == f"export SLURM_CONF={folder}/slurm.conf\n"


def stop_cluster(folder: Path) -> None:
    subprocess.run([CLUSTER, "stop", folder], check=True, timeout=180)
