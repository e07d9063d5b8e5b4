"""The memory of the machine by its files, and the runs when it runs out."""

import math
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from poslab.record.facts import Manifest
from poslab.record.writer import RunRecord
from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import End, Launcher, Task
from poslab.study.launch.machine import machine_memory
from poslab.study.pool import Member, Pool
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.runs import request

GIB = 2**30
VERSION_1 = "memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        # A limit of a parent group counts, too.
        ("0::/user/job", {"user/memory.max": f"{2**20}", "user/job/memory.max": "max"}, 2**20),
        # Version 1 in a container: its own folder is the root of the mount.
        ("5:cpu:/docker/a\n4:memory:/docker/a\n0::/", {VERSION_1: f"{2**21}"}, 2**21),
        ("4:memory:/", {VERSION_1: "9223372036854771712"}, None),  # without a limit
    ],
)
def test_a_cgroup_limits_the_memory(group, limits, expected, tmp_path):
    files = {"proc/self/cgroup": group, **{f"sys/fs/cgroup/{name}": value for name, value in limits.items()}}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    assert machine_memory(tmp_path).bytes == (expected or machine_memory(tmp_path / "nowhere").bytes)


class Ends(Launcher):
    """Every task ends by itself at the second poll, with one status."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.running: list[list[Task]] = [[], []]  # never polled, and polled once
        self.begun: list[str] = []
        self.most = 0

    def start(self, task: Task) -> bool:
        self.begun.append(task.name)
        self.running[0].append(task)
        self.most = max(self.most, sum(map(len, self.running)))
        return True

    def ended(self) -> list[End]:
        self.running, over = [[], self.running[0]], self.running[1]
        return [End(task, self.status) for task in over]

    def stop(self) -> None:
        pass

    kill = stop


def pool(folder: Path, status: int, memory: int, seeds: int = 1) -> tuple[Pool, Ends]:
    launcher = Ends(status)
    members = [Member.of(plan(request(seed=seed), folder)) for seed in range(seeds)]
    display = StudyDisplay(Console(quiet=True), members)
    return Pool(members, launcher, 2, display, Stopper(), {False: [memory]}), launcher


def test_a_repeatedly_killed_run_says_what_to_choose(tmp_path):
    runs, launcher = pool(tmp_path, -9, 16 * GIB)
    runs.run()
    assert len(launcher.begun) == 3
    (member,) = runs.members
    assert member.state == "failed"
    assert "choose a smaller trainer.batch_size" in member.note


@pytest.mark.parametrize(("share", "at_once"), [(2.5, 2), (math.inf, 3), (0.1, 1)])
def test_as_many_runs_start_as_are_likely_to_fit_in_memory(share, at_once, tmp_path):
    member = Member.of(plan(request(), tmp_path))
    memory = 10**18 if math.isinf(share) else round(share * member.memory)
    runs, launcher = pool(tmp_path, 1, memory, seeds=3)
    runs.run()
    assert launcher.most == at_once
    assert len(launcher.begun) == 3


def test_runs_on_cpu_and_on_gpus_share_no_memory(tmp_path):
    runs, launcher = pool(tmp_path, 1, 0, seeds=3)
    on_gpu = runs.members[0]
    on_gpu.task = replace(on_gpu.task, cuda=True)
    runs.memory = {False: [round(2.5 * on_gpu.memory)], True: [round(0.5 * on_gpu.memory)]}
    runs.run()
    assert launcher.most == 3


def test_a_run_that_diverged_in_another_command_is_not_done(tmp_path):
    runs, _ = pool(tmp_path, 1, 16 * GIB)
    (member,) = runs.members
    reason = "the loss is not a number at step 3"
    facts = Manifest(**{**member.job.facts, "run": member.job.directory.name})
    RunRecord(member.job.directory, facts).update(status="diverged", reason=reason)
    runs.run()
    assert (member.state, member.note) == ("failed", reason)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc's allocator")
def test_a_run_keeps_the_memory_that_it_frees():
    """Otherwise the system would clear the pages again at each allocation of that size."""
    program = """
import resource, sys
from poslab.study.run.processes import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for count in range(40):
    if count == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    first, second = b"1" * 2**24, b"2" * 2**24
    del first, second
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    keep, default = (
        int(subprocess.check_output([sys.executable, "-c", program, name])) for name in ("keep", "default")
    )
    assert keep < 0.1 * default
