"""Fixtures for tests of launchers: separate leases, and a Slurm cluster on this machine."""

import subprocess
import tempfile

import pytest

from poslab.study.launch.launchers import slurm as slurm_launcher
from support.slurm import cluster_in, slurm
from support.tasks import until


@pytest.fixture
def own_leases(monkeypatch, tmp_path):
    """Use separate leases, so that tests and other runs on the machine do not wait for each other."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory):
    """The folder of a cluster, one for all tests of a file."""
    with cluster_in(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


@pytest.fixture
def cluster(running_cluster, monkeypatch):
    """The cluster's folder; jobs that a test leaves in the queue are cancelled."""
    monkeypatch.setenv("SLURM_CONF", str(running_cluster / "slurm.conf"))
    monkeypatch.setattr(slurm_launcher, "POLL_SECONDS", 0.2)
    yield running_cluster
    slurm("scancel", "--user=root")
    subprocess.run(["scancel", "--full", "--signal=KILL", "--user=root"], capture_output=True, check=False)
    until(lambda: not slurm("squeue", "--noheader"))
