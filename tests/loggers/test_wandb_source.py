"""A report read from W&B equals that of the machine that ran the runs, and uses no damaged data."""

import io
import shutil

import pytest
from rich.console import Console

from poslab.commands.report import main
from poslab.loggers.fetch import account as wandb_account
from poslab.loggers.fetch.account import open_account
from poslab.loggers.fetch.study import fetch_study
from poslab.record.manifest import read_manifest
from poslab.record.reader import load
from poslab.record.seal import sealed
from support.commands import assert_refused, read
from support.records import contents, plan, write_run
from support.wandb_server.graphql import Refused
from support.wandb_server.server import Listener, online, served
from support.wandb_server.store import Run

server = served("module")
RUNS = {
    "rope-0-aa00": {"pos": "rope", "seed": 0},
    "rope-1-aa01": {"pos": "rope", "seed": 1, "shift": 0.01},
    "alibi-0-aa02": {"pos": "alibi", "seed": 0, "shift": 0.1},
    "alibi-1-aa03": {"pos": "alibi", "seed": 1, "shift": 0.12},
    "t5-0-aa04": {"pos": "t5", "seed": 0, "status": "diverged", "reason": "a loss that is no number"},
    "t5-1-aa05": {"pos": "t5", "seed": 1, "status": "failed", "reason": "out of memory"},
    "fox-0-aa06": {"pos": "fox", "seed": 0, "status": "running"},
    "fox-1-aa07": {"pos": "fox", "seed": 1, "status": "interrupted", "reason": "stopped by SIGTERM"},
}
NEVER = "fox-2-aa08"  # requested but not begun
REFUSED = "fire-0-aa09"  # for which there is no W&B run


def make(runs, study):
    for name, facts in RUNS.items():
        write_run(runs, name, study=study, identity=name[-4:], **facts)
    write_run(runs, REFUSED, study=study, pos="fire", status="failed", reason="a pair that cannot work")
    plan(runs, [*RUNS, NEVER, REFUSED], "alibi", study=study)
    return runs / study


def put(server, directory, number, group, job_type="train"):
    """Store a run on the server without a client."""
    identity = {"identity": {"value": directory.name[-4:]}}
    run = Run("poslab", number, directory.name, group, job_type, state="finished", raw_config=identity)
    run.files = {f"record/{path.name}": path.read_bytes() for path in directory.iterdir() if path.is_file()}
    server.runs[number] = run
    server.project_facts("poslab")
    return run


def put_study(server, study):
    for name in RUNS:
        put(server, study / name, f"{study.name}-{name[-4:]}", study.name)
    listed = put(server, study, f"{study.name}-report", study.name, job_type="report")
    for path in (study / REFUSED).iterdir():
        listed.files[f"record/runs/{REFUSED}/{path.name}"] = path.read_bytes()
    return listed


@pytest.fixture(scope="module")
def study(server, tmp_path_factory):
    """A study of runs with every kind of end, on this machine and in W&B."""
    folder = make(tmp_path_factory.mktemp("made") / "runs", "made")
    put_study(server, folder)
    return folder


def downloads(server, since=0):
    """Return the tables that were read from W&B."""
    seen = [each for each in server.requests[since:] if each.method == "GET"]
    return [each.path.rpartition("record/")[2] for each in seen if each.path.endswith(".csv")]


@pytest.fixture
def fetched(server, tmp_path, monkeypatch):
    """Read a study into a separate cache; the studies' folder, and the printed lines."""
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))

    def call(study):
        printed = io.StringIO()
        with online(server):
            root = fetch_study(open_account(None, None), study, Console(file=printed, width=500))
        return root, printed.getvalue()

    return call


def statuses(root, study):
    return {run.name: (run.status, run.reason) for run in load(study, root).runs}


def test_only_changed_files_are_read_again(server, fetched, tmp_path):
    study = make(tmp_path / "runs", "changing")
    listed = put_study(server, study)
    root, _ = fetched("changing")
    assert statuses(root, "changing") == statuses(study.parent, "changing")
    since = len(server.requests)
    fetched("changing")
    assert downloads(server, since) == []
    # One run ends, another is removed, and the list is rewritten.
    shutil.rmtree(study / "fox-0-aa06")
    done = write_run(study.parent, "fox-0-aa06", pos="fox", study="changing", identity="aa06")
    put(server, done, "changing-aa06", "changing")
    del server.runs["changing-aa05"]
    shutil.rmtree(study / "t5-1-aa05")
    plan(study.parent, [*RUNS][:4], "rope", study="changing")
    listed.files["record/study.json"] = (study / "study.json").read_bytes()
    since = len(server.requests)
    fetched("changing")
    assert sorted(downloads(server, since)) == ["extrapolation.csv", "metrics.csv", "position.csv"]
    assert contents(root / "changing") == {
        name: content for name, content in contents(study).items() if read_by_reports(study, name)
    }
    # Damaged files in the cache are read again.
    damaged = root / "changing" / "rope-0-aa00" / "metrics.csv"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    since = len(server.requests)
    fetched("changing")
    assert downloads(server, since) == ["metrics.csv"]
    assert contents(root / "changing")["rope-0-aa00/metrics.csv"] == damaged.read_bytes()


def read_by_reports(study, name):
    """Return manifests, the list, and the tables of runs that ended."""
    run = study / name.partition("/")[0]
    return name.endswith(".json") or read_manifest(run).status in ("done", "diverged")


def test_damaged_files_are_named_and_never_used(server, fetched, tmp_path):
    study = make(tmp_path / "runs", "bad")
    put_study(server, study)
    runs = {number.removeprefix("bad-"): run for number, run in server.runs.items()}

    def rewritten(number, **fields):
        manifest = read_manifest(study / runs[number].display_name).as_json()
        runs[number].files["record/manifest.json"] = sealed({**manifest, **fields}).encode()

    runs["aa00"].files["record/metrics.csv"] += b"1"
    del runs["aa01"].files["record/position.csv"]
    manifest = bytearray(runs["aa02"].files["record/manifest.json"])
    manifest[200] ^= 1
    runs["aa02"].files["record/manifest.json"] = bytes(manifest)
    rewritten("aa04", study="another")
    rewritten("aa05", run="../../../outside")
    rewritten("aa06", files={"../outside.csv": "0" * 64}, status="done")
    runs["aa07"].files = {"record/../../outside.csv": b"x", "config.yaml": b""}
    runs["aa07"].state = "killed"
    runs["report"].files |= {"record/runs/../outside.csv": b"x", "record/runs/..": b"x"}

    root, printed = fetched("bad")
    found = statuses(root, "bad")
    assert found["rope-0-aa00"] == ("unreadable", "metrics.csv is damaged")
    assert found["rope-1-aa01"] == ("unreadable", "position.csv is missing")
    assert found["alibi-1-aa03"] == ("done", "")
    assert {found[name][0] for name in found if name[-4:] in ("aa02", "aa04", "aa05", "aa06", "aa07")} == {
        "not started"
    }
    for line in (
        "rope-0-aa00 (bad-aa00): metrics.csv is damaged in W&B",
        "rope-1-aa01 (bad-aa01): position.csv is missing in W&B",
        "alibi-0-aa02 (bad-aa02) has a damaged manifest.json",
        "t5-0-aa04 (bad-aa04) names the study 'another'",
        "t5-1-aa05 (bad-aa05) names a file outside its folder",
        "fox-0-aa06 (bad-aa06) names a file outside its folder",
        "fox-1-aa07 (bad-aa07) has no record: killed in W&B",
    ):
        assert line in printed, printed
    kept = {path.relative_to(root) for path in root.rglob("*.csv")}
    assert {str(path.parent) for path in kept} == {f"bad/{name}" for name in [*[*RUNS][:2], "alibi-1-aa03"]}
    assert not list(tmp_path.rglob("outside*"))


def test_a_damaged_list_is_named_and_runs_are_listed_by_name(server, fetched, tmp_path):
    study = make(tmp_path / "runs", "listless")
    listed = put_study(server, study)
    listed.files["record/study.json"] = b"{}"
    root, printed = fetched("listless")
    assert "no report run of the study has its study.json: runs are listed by name" in printed
    assert [run.name for run in load("listless", root).runs] == sorted([*RUNS, REFUSED])
    assert not (root / "listless" / "study.json").exists()


def test_of_two_equal_runs_the_newest_finished_one_is_used(server, fetched, tmp_path):
    for place, facts in (
        ("first", {"finished": "2026-01-01T00:02:00+00:00", "shift": 0.5}),
        ("second", {"finished": "2026-01-01T00:01:00+00:00"}),
        ("third", {"finished": None, "status": "running"}),
    ):
        made = write_run(tmp_path / place, "rope-0-aa00", study="twice", identity="aa00", **facts)
        put(server, made, f"twice-{place}", "twice")
    root, printed = fetched("twice")
    assert "rope-0-aa00 is in W&B 3 times: rope-0-aa00 (twice-first) is used, the newest" in printed
    assert contents(root / "twice" / "rope-0-aa00") == contents(tmp_path / "first" / "twice" / "rope-0-aa00")


@pytest.mark.parametrize(("code", "expected"), [(404, 0), (500, 1)])
def test_a_listed_file_that_the_server_lacks(study, run_command, tmp_path, monkeypatch, code, expected):
    """404: the upload was interrupted, and the run is listed as damaged. Other errors: no report."""
    given = Listener._stored

    def stored(listener, seen, path):
        if path.endswith("made-aa03/record/metrics.csv"):
            raise Refused("not now", code)
        return given(listener, seen, path)

    monkeypatch.setattr(Listener, "_stored", stored)
    monkeypatch.setattr(wandb_account, "RETRIES", 1)
    status, _, err = run_command(main, "source=wandb", "study=made")
    assert status == expected
    if code == 404:
        assert "alibi-1-aa03 (made-aa03): metrics.csv is missing in W&B" in err
        rows = read(tmp_path / "reports" / "made" / "summary.csv")
        assert {row["run"]: row["status"] for row in rows}["alibi-1-aa03"] == "unreadable"
    else:
        assert err.count("\n") == 1
        assert "W&B failed at record/metrics.csv of made-aa03" in err
        assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("source=wandb", "source=wandb needs study=NAME"),
        ("source=disk study=a", "source=disk is unknown: write source=wandb"),
        ("study=a project=x", "project= is for W&B: add source=wandb"),
        ("source=wandb checkpoint=x:latest", "leave source= out"),
        ("source=wandb study=../a", "'../a' cannot be the name of a study"),
        ("source=wandb study=nothing", "W&B has no run of study=nothing in someone/poslab"),
        ("source=wandb study=made project=nothing", "W&B has no project someone/nothing"),
        ("source=wandb study=made project=a/b", "'a/b' cannot be the name of an entity or a project"),
    ],
)
def test_missing_studies_and_runs_are_named_in_one_line(study, run_command, tmp_path, arguments, expected):
    assert_refused(run_command(main, *arguments.split()), expected)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("setting", "value", "status", "expected"),
    [
        ("WANDB_API_KEY", None, 2, "not logged in to W&B: run `wandb login`, or set WANDB_API_KEY"),
        ("WANDB_API_KEY", "9" * 40, 2, "W&B refuses the key: run `wandb login --relogin`"),
        ("WANDB_BASE_URL", "http://127.0.0.1:1", 1, "W&B does not answer: "),
    ],
)
def test_a_server_that_does_not_answer_is_named_in_one_line(
    server, tmp_path, monkeypatch, capfd, setting, value, status, expected
):
    """Nothing else is printed, not even by the client, and there is no prompt."""
    monkeypatch.chdir(tmp_path)
    with online(server), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETRC", str(tmp_path / "no-netrc"))
        patch.setenv("WANDB_HTTP_TIMEOUT", "2")
        patch.setenv(setting, value or "")
        capfd.readouterr()
        found = main(["source=wandb", "study=made"])
        shown = capfd.readouterr()
    assert (found, shown.out, shown.err.count("\n")) == (status, "", 1)
    assert expected in shown.err
