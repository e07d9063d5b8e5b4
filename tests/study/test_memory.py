"""How much memory there is, by the machine's own files, and what becomes of runs when it runs out."""

import math
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from poslab.study.display.study_view import StudyDisplay
from poslab.study.launch.contract import End, Launcher, Task
from poslab.study.launch.memory import limited_to, machine_memory, out_of_memory_kills
from poslab.study.pool import Member, Pool
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.commands import rows, start, tiny
from support.runs import request

GIB = 2**30

MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\nSwapTotal:       1048576 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("files", "expected", "kills"),
    [
        ({}, 16 * GIB, 0),  # swap does not count
        (  # a limit above the process's own cgroup counts too
            {
                "proc/self/cgroup": "0::/user/job\n",
                "sys/fs/cgroup/user/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/user/job/memory.max": "max\n",
                "sys/fs/cgroup/user/job/memory.events": "oom 4\noom_kill 3\n",
                "proc/vmstat": "oom_kill 9\n",
            },
            4 * GIB,
            3,
        ),
        (  # version 1 in a container, whose own folder is the root of what is mounted
            {
                "proc/self/cgroup": "5:cpu:/docker/a\n4:memory:/docker/a\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
            },
            2 * GIB,
            2,
        ),
        (  # version 1 without a limit
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "proc/vmstat": "pgfault 1\noom_kill 7\n",
            },
            16 * GIB,
            7,
        ),
    ],
)
def test_a_cgroup_limits_what_there_is(files, expected, kills, tmp_path):
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert machine_memory(root).bytes == expected
    assert out_of_memory_kills(root) == kills


def test_a_limit_of_the_shell_counts():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with limited_to(3 * GIB):
        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        assert machine_memory().bytes <= allowed
        with pytest.raises(MemoryError):
            bytearray(4 * GIB)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


class Ends(Launcher):
    """Every task ends by itself at the second look, with the status that `ending` gives its name."""

    def __init__(self, options: Any, runs: int) -> None:
        self.ending = options
        self.looks: dict[str, int] = {}
        self.tasks: dict[str, Task] = {}
        self.begun: list[str] = []
        self.most = 0

    def start(self, task: Task) -> bool:
        self.begun.append(task.name)
        self.tasks[task.name], self.looks[task.name] = task, 0
        self.most = max(self.most, len(self.tasks))
        return True

    def ended(self) -> list[End]:
        for name in self.tasks:
            self.looks[name] += 1
        over = [name for name in self.tasks if self.looks[name] == 2]
        return [End(self.tasks.pop(name), self.ending(name)) for name in over]

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


def pool(folder: Path, ending: Any, memory: int, seeds: int = 1) -> tuple[Pool, Ends]:
    launcher = Ends(ending, seeds)
    members = [Member.of(plan(request(seed=seed), folder)) for seed in range(seeds)]
    display = StudyDisplay(Console(quiet=True), [each.entry for each in members])
    return Pool(members, launcher, 2, display, Stopper(), {False: [memory], True: []}), launcher


@pytest.mark.parametrize(("memory_ran_out", "times"), [(True, 1), (False, 3)])
def test_a_run_that_died_of_memory_is_not_started_again(memory_ran_out, times, tmp_path, monkeypatch):
    counted = [0]
    monkeypatch.setattr("poslab.study.pool.out_of_memory_kills", lambda: counted[0])

    def ending(name: str) -> int:
        counted[0] += memory_ran_out
        return -9

    made, launcher = pool(tmp_path, ending, 16 * GIB)
    made.run()
    assert len(launcher.begun) == times
    (member,) = made.members
    assert member.entry.state == "failed"
    assert ("killed because memory ran out" in member.entry.note) == memory_ran_out
    if memory_ran_out:
        assert "choose a smaller trainer.batch_size" in member.entry.note


@pytest.mark.parametrize(("share", "at_once"), [(2.5, 2), (math.inf, 3), (0.1, 1)])
def test_as_many_runs_at_a_time_as_memory_is_likely_to_hold(share, at_once, tmp_path):
    member = Member.of(plan(request(), tmp_path))
    memory = 10**18 if math.isinf(share) else round(share * member.memory)
    made, launcher = pool(tmp_path, lambda name: 1, memory, seeds=3)
    made.run()
    assert launcher.most == at_once
    assert len(launcher.begun) == 3


@pytest.fixture
def cgroup():
    """A memory cgroup in which this user may put processes, of 1.6 GB; skips where there can be none."""
    for above, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        folder = Path("/sys/fs/cgroup") / above / f"poslab-test-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(1600 * 2**20))
        except OSError:
            if folder.exists():
                folder.rmdir()
            continue
        yield folder
        subprocess.run(["rmdir", str(folder)], check=False)  # once the kernel has let its processes go
        return
    pytest.skip("needs a memory cgroup of its own: root, and a kernel that allows it")


@pytest.mark.study
def test_the_kernel_kills_a_run_and_the_others_are_made(cgroup, tmp_path):
    """The large one passes the check, since it takes more than the bound."""
    sizes = tiny(context_length=128, model__layers=4, model__width=256, model__heads=4, logger="local")
    settings = ["-m", "trainer.batch_size=4,160", "study=x", *sizes]
    settings.remove("trainer.batch_size=4")
    output = tmp_path / "printed.txt"
    processes = cgroup / "cgroup.procs"
    study = start(
        *settings, cwd=tmp_path, output=output, preexec_fn=lambda: processes.write_text(str(os.getpid()))
    )
    assert study.wait(600) == 1
    assert "batch_size=160 / seed 0: its process was killed because memory ran out" in output.read_text()
    assert "resumes from its last checkpoint" not in output.read_text()
    listed = {row["status"]: row["reason"] for row in rows(tmp_path / "reports/x/summary.csv")}
    assert set(listed) == {"done", "failed"}
    assert "choose a smaller trainer.batch_size" in listed["failed"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc's allocator")
def test_a_run_keeps_the_memory_that_it_frees():
    """Pages that the system must clear again, each time that as much is allocated as was freed before."""
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
    pages = {
        name: int(
            subprocess.run([sys.executable, "-c", program, name], stdout=subprocess.PIPE, check=True).stdout
        )
        for name in ("keep", "default")
    }
    assert pages["keep"] < 0.1 * pages["default"], pages
