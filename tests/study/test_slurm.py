"""The launcher for Slurm against a real cluster of this one machine; see slurm/cluster.sh."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.study.launch.contract import End, Launcher, Task, launcher_class
from poslab.study.launch.launchers import slurm as module
from support.models import CONF
from support.slurm import start_cluster, stop_cluster

PATIENCE = 60  # seconds
ENDS_ON_SIGTERM = "import signal, time, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
# As a run does: the first SIGTERM begins a checkpoint, which takes a while; a second one breaks it off.
WRITES_ON_SIGTERM = """
import os, signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
Path("started").touch()
while not told:
    time.sleep(0.05)
time.sleep(2)
print("told", len(told), "times", flush=True)
sys.exit(143)
"""
WAITS_FOR_A_WORD = """
import sys, time
from pathlib import Path
Path("started").touch()
while not Path("go").exists():
    time.sleep(0.05)
sys.exit(5)
"""
TWO_TURNS = """
import os
rank = os.environ["SLURM_PROCID"]
if rank != "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
from pathlib import Path
first = not Path("started" + rank).exists()
Path("started" + rank).touch()
while first:
    time.sleep(0.05)
print("second turn")
"""


def launcher(**changes: object) -> Launcher:
    section = {**arms(CONF / "launcher")["slurm"], "cores_per_run": 1, "minutes": 5, **changes}
    kind, options = launcher_class(section)
    return kind(options, 1)


def test_without_sbatch_one_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="launcher=local") as error:
        launcher()
    assert "\n" not in str(error.value)


def test_without_submitit_one_line_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match="uv run --extra slurm") as error:
        launcher()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("minutes", 0), ("cores_per_run", 0), ("memory_gb", 0.0), ("gpus", 1), ("partition", "")],
)
def test_options_are_checked(key, value):
    with pytest.raises(ConfigError, match=f"launcher.{key}"):
        launcher(**{key: value})


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slurm")
    start_cluster(folder)
    yield folder
    stop_cluster(folder)


@pytest.fixture
def cluster(_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cluster's folder; what a test leaves in the queue is cancelled."""
    monkeypatch.setenv("SLURM_CONF", str(_cluster / "slurm.conf"))
    monkeypatch.setattr(module, "POLL", 0.2)
    yield _cluster
    slurm("scancel", "--user=root")
    subprocess.run(["scancel", "--full", "--signal=KILL", "--user=root"], capture_output=True, check=False)
    until(lambda: not slurm("squeue", "--noheader"))


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def task(folder: Path, code: str, name: str = "run", devices: int = 1, cuda: bool = False) -> Task:
    return Task(
        name=name,
        command=(sys.executable, "-c", code),
        working_directory=folder,
        log=folder / "study" / name / "log.txt",
        study=folder / "study",
        cuda=cuda,
        devices=devices,
        nodes=1,
    )


def ends(of: Launcher, number: int = 1) -> list[End]:
    found: list[End] = []

    def are_there() -> bool:
        found.extend(of.ended())
        return len(found) >= number

    until(are_there)
    return found


def job_of(made: Task) -> str:
    return str(json.loads((made.study / ".launcher" / "slurm.json").read_text())[made.name])


def state_of(made: Task) -> str:
    return slurm("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_of(made)}")


@pytest.mark.cluster
def test_a_run_that_succeeds(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("POSLAB_LIFELINE", "stdin")
    code = """if True:
        import os, sys
        print(os.getcwd(), repr(sys.stdin.read()), os.environ.get("POSLAB_LIFELINE"))
        print(os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"], os.environ["SLURM_CPUS_PER_TASK"])
        print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["MARK"])
        print("an error", file=sys.stderr)"""
    made = task(tmp_path, code)
    made.log.parent.mkdir(parents=True)
    made.log.write_text("before\n")
    slurm_launcher = launcher(cores_per_run=2, setup=["export MARK='of setup'"], memory_gb=0.001)
    assert slurm_launcher.start(made)
    assert ends(slurm_launcher) == [End(made, 0)]
    assert slurm_launcher.ended() == []
    lines = ["before", f"{tmp_path} '' None", "2 2 2", "None of setup", "an error"]
    assert sorted(made.log.read_text().splitlines()) == sorted(lines)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_a_run_that_fails(cluster, tmp_path, code, status):
    made = task(tmp_path, code)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    assert ends(slurm_launcher) == [End(made, status)]
    assert state_of(made) == "FAILED"


@pytest.mark.cluster
def test_gpus_are_asked_for(cluster, tmp_path):
    made = task(tmp_path, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", devices=2, cuda=True)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    assert ends(slurm_launcher) == [End(made, 0)]
    assert made.log.read_text() == "0,1\n"


@pytest.mark.cluster
def test_a_process_for_each_device_with_a_log_of_its_own(cluster, tmp_path):
    code = "import os; print(*(os.environ['SLURM_' + name] for name in ('NTASKS', 'PROCID', 'LOCALID')))"
    made = task(tmp_path, code, devices=2)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    assert ends(slurm_launcher) == [End(made, 0)]
    assert made.log.read_text() == "2 0 0\n"
    assert made.log.with_name("log.rank1.txt").read_text() == "2 1 1\n"


@pytest.mark.cluster
def test_a_process_that_fails_ends_the_others(cluster, tmp_path):
    made = task(
        tmp_path,
        "import os, time; time.sleep(0 if os.environ['SLURM_PROCID'] == '1' else 300); raise SystemExit(3)",
        devices=2,
    )
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    (end,) = ends(slurm_launcher)
    assert end.status == 3


@pytest.mark.cluster
def test_a_cancelled_run_is_told_once_and_may_finish_its_checkpoint(cluster, tmp_path):
    check_cancelling(tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize("tracking", ["cgroup", "pgid"])
def test_the_same_where_slurm_finds_processes_otherwise(tracking, tmp_path, monkeypatch):
    folder = tmp_path / "cluster"
    folder.mkdir()
    start_cluster(folder, tracking)
    try:
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        check_cancelling(tmp_path)
        check_time_limit(tmp_path)
    finally:
        stop_cluster(folder)


def check_cancelling(folder: Path) -> None:
    made = task(folder, WRITES_ON_SIGTERM, "cancelled")
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((folder / "started").exists)
    slurm("scancel", job_of(made))
    assert ends(slurm_launcher) == [End(made, 143, f"Slurm job {job_of(made)} was cancelled", again=False)]
    assert made.log.read_text() == "told 1 times\n"


@pytest.mark.cluster
def test_stop_cancels_what_waits_and_tells_what_runs(cluster, tmp_path):
    cores = int(slurm("sinfo", "--noheader", "--format=%c"))
    slurm_launcher = launcher(cores_per_run=cores)
    running, waiting = task(tmp_path, WRITES_ON_SIGTERM, "running"), task(tmp_path, "", "waiting")
    assert slurm_launcher.start(running)
    until((tmp_path / "started").exists)
    assert slurm_launcher.start(waiting)
    slurm_launcher.stop()
    found = {end.task.name: end for end in ends(slurm_launcher, 2)}
    assert found["running"].status == 143
    assert found["waiting"].status is None
    assert all(end.reason == f"Slurm job {job_of(end.task)} was cancelled" for end in found.values())
    assert not any(end.again for end in found.values())


@pytest.mark.cluster
def test_kill_does_not_wait(cluster, tmp_path):
    made = task(
        tmp_path,
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('started', 'w'); time.sleep(300)",
    )
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((tmp_path / "started").exists)
    begun = time.monotonic()
    slurm_launcher.kill()
    (end,) = ends(slurm_launcher)
    assert end.status in (None, -9)
    assert time.monotonic() - begun < 12  # the cluster's KillWait is 15


@pytest.mark.cluster
def test_a_requeued_run_is_made_again(cluster, tmp_path):
    made = task(tmp_path, ENDS_ON_SIGTERM + TWO_TURNS)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((tmp_path / "started0").exists)
    job = job_of(made)
    slurm("scontrol", "requeue", job)
    assert ends(slurm_launcher) == [End(made, 0)]
    assert made.log.read_text() == "second turn\n"
    assert job_of(made) == job


@pytest.mark.cluster
@pytest.mark.parametrize("devices", [1, 2])
def test_near_its_time_limit_a_run_is_told_and_goes_on_in_another_turn(cluster, tmp_path, devices):
    check_time_limit(tmp_path, devices)


def check_time_limit(folder: Path, devices: int = 1) -> None:
    made = task(folder, ENDS_ON_SIGTERM + TWO_TURNS, "long", devices)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((folder / f"started{devices - 1}").exists)
    until((folder / "started0").exists)
    slurm("scancel", "--signal=USR2", job_of(made))  # what Slurm itself does 90 seconds before the limit
    assert ends(slurm_launcher) == [End(made, 0)]
    assert made.log.read_text() == "second turn\n"


@pytest.mark.cluster
def test_a_run_that_fails_when_it_is_told_is_not_made_again(cluster, tmp_path):
    made = task(tmp_path, ENDS_ON_SIGTERM.replace("143", "4") + TWO_TURNS)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((tmp_path / "started0").exists)
    slurm("scancel", "--signal=USR2", job_of(made))
    assert ends(slurm_launcher) == [End(made, 4)]


@pytest.mark.cluster
def test_a_running_job_is_found_again_when_its_command_is_gone(cluster, tmp_path):
    code = WAITS_FOR_A_WORD
    section = {**arms(CONF / "launcher")["slurm"], "cores_per_run": 1}
    parent = f"""if True:
        from pathlib import PosixPath
        from poslab.study.launch.contract import Task, launcher_class
        kind, options = launcher_class({section!r})
        assert kind(options, 1).start({task(tmp_path, code)!r})"""
    subprocess.run([sys.executable, "-c", parent], check=True, timeout=120)
    made = task(tmp_path, code)
    job = job_of(made)
    until((tmp_path / "started").exists)
    another = launcher()
    assert another.start(made)
    assert job_of(made) == job
    assert slurm("squeue", "--noheader", "--format=%i") == job
    (tmp_path / "go").touch()
    assert ends(another) == [End(made, 5)]
    # It is over: whoever asks now wants it anew.
    assert another.start(made)
    assert job_of(made) != job
    assert ends(another) == [End(made, 5)]


@pytest.mark.cluster
def test_a_waiting_job_is_found_again(cluster, tmp_path):
    cores = int(slurm("sinfo", "--noheader", "--format=%c"))
    first = launcher(cores_per_run=cores)
    running = task(tmp_path, ENDS_ON_SIGTERM + "time.sleep(300)", "running")
    waiting = task(tmp_path, "print('ran')", "waiting")
    assert first.start(running)
    assert first.start(waiting)
    assert state_of(waiting) == "PENDING"
    another = launcher(cores_per_run=cores)
    assert another.start(waiting)
    assert len(slurm("squeue", "--noheader", "--format=%i").split()) == 2
    until(lambda: state_of(running) == "RUNNING")
    slurm("scancel", job_of(running))
    assert ends(another) == [End(waiting, 0)]
    assert waiting.log.read_text() == "ran\n"


@pytest.mark.cluster
def test_two_commands_submit_a_run_once(cluster, tmp_path):
    made = task(tmp_path, ENDS_ON_SIGTERM + "time.sleep(300)")

    def command() -> None:
        mine = launcher()
        until(lambda: mine.start(made))

    with ThreadPoolExecutor(4) as pool:
        for started in [pool.submit(command) for _ in range(4)]:
            started.result()
    assert slurm("squeue", "--noheader", "--format=%i").split() == [job_of(made)]


@pytest.mark.cluster
def test_a_controller_that_is_away_ends_nothing(cluster, tmp_path):
    made = task(tmp_path, WAITS_FOR_A_WORD)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    until((tmp_path / "started").exists)
    controller = int((cluster / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{controller}").exists())
    try:
        assert slurm_launcher.ended() == []
        assert not launcher().start(made)
        assert not launcher().start(task(tmp_path, "", "new"))
    finally:
        subprocess.run(["slurmctld"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    (tmp_path / "go").touch()
    assert ends(slurm_launcher) == [End(made, 5)]


@pytest.mark.cluster
def test_a_refused_run_says_why_in_one_line(cluster, tmp_path, capsys):
    with pytest.raises(ConfigError, match="invalid partition") as error:
        launcher(partition="nowhere").start(task(tmp_path, ""))
    assert "\n" not in str(error.value)
    assert capsys.readouterr() == ("", "")
    assert list((tmp_path / "study" / ".launcher" / "slurm").iterdir()) == []


@pytest.mark.cluster
def test_a_process_does_not_outlive_its_job(cluster, tmp_path):
    code = """if True:
        import os, time
        with open("process", "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getppid(), 9)
        time.sleep(300)"""
    made = task(tmp_path, code)
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    (end,) = ends(slurm_launcher)
    assert end.status is None
    assert end.again
    assert end.reason.startswith(f"Slurm job {job_of(made)} failed; see ")
    process = (tmp_path / "process").read_text()
    until(lambda: not Path(f"/proc/{process}").exists())


@pytest.mark.cluster
def test_a_program_that_cannot_be_started_says_where_to_look(cluster, tmp_path):
    made = task(tmp_path / "nowhere", "")
    made = Task(**{**vars(made), "study": tmp_path, "log": tmp_path / "log.txt"})
    slurm_launcher = launcher()
    assert slurm_launcher.start(made)
    (end,) = ends(slurm_launcher)
    assert end.status is None
    assert "nowhere" in Path(end.reason.split("see ")[1]).read_text()
