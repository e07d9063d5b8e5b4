"""What several tests of launchers need: leases of their own, and a Slurm cluster of this machine."""

import subprocess
import tempfile

import pytest

from poslab.study.launch.launchers import slurm as slurm_launcher
from support.slurm import cluster_in, slurm
from support.tasks import until


@pytest.fixture
def own_leases(monkeypatch, tmp_path):
    """The tests neither wait for the machine's other runs nor hold them up."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory):
    """The folder of a cluster, one for the tests of a file."""
    with cluster_in(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


@pytest.fixture
def cluster(running_cluster, monkeypatch):
    """The cluster's folder; what a test leaves in the queue is cancelled."""
    monkeypatch.setenv("SLURM_CONF", str(running_cluster / "slurm.conf"))
    monkeypatch.setattr(slurm_launcher, "POLL_SECONDS", 0.2)
    yield running_cluster
    slurm("scancel", "--user=root")
    subprocess.run(["scancel", "--full", "--signal=KILL", "--user=root"], capture_output=True, check=False)
    until(lambda: not slurm("squeue", "--noheader"))
