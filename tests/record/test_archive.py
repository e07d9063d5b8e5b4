"""Records archived in one file: the same bytes from the same records, and nothing but records extracted."""

import hashlib
import io
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from poslab.config.text import plain, without_paths
from poslab.record.archive import ARCHIVE, load_available, pack, unpack
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.reader import ReportError, load_run
from poslab.record.seal import read_sealed, sealed
from poslab.record.writer import RunRecord
from support.records import plan, write_run

Change = Callable[[bytes], bytes]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with three runs in runs/a; no temporary file may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    home = tmp_path / "home"
    runs = home / "runs"
    for name, pos in (("rope-0", "rope"), ("alibi-0", "alibi")):
        write_run(runs, name, pos=pos, study="a", config={"data": {"name": "stdlib"}})
    dead = {"status": "failed", "reason": "out of memory", "config": {"data": {"name": "stdlib"}}}
    write_run(runs, "dead", pos="t5", study="a", **dead)
    plan(runs, ["rope-0", "alibi-0", "dead", "never"], study="a")
    monkeypatch.chdir(home)
    yield home
    assert list(temporary.iterdir()) == []


def contents(packed: bytes) -> dict[str, bytes]:
    """Return an archive's files as the standard library reads them."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as tar:
        files = ((name, tar.extractfile(name)) for name in tar.getnames())
        return {name: file.read() for name, file in files if file is not None}


def archive(*entries: tuple[str | tarfile.TarInfo, bytes]) -> bytes:
    """Return a compressed tar archive of these files, or headers of any kind."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for entry, content in entries:
            header = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            header.size = header.size or len(content)
            tar.addfile(header, io.BytesIO(content.ljust(header.size, b"\0")) if content else None)
    return lzma.compress(file.getvalue())


def header(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, to, size
    return info


def with_more(entry: str | tarfile.TarInfo, content: bytes = b"") -> Change:
    """Return a change that adds an entry at the front."""
    return lambda packed: archive((entry, content), *contents(packed).items())


def test_the_same_records_give_the_same_bytes(home):
    first = pack(home / "runs" / "a")
    copy = home / "copy" / "a"
    for path in sorted((home / "runs" / "a").rglob("*.*"), reverse=True):  # created in another order
        again = copy / path.relative_to(home / "runs" / "a")
        again.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, again)
        os.utime(again, (1, 1))
        again.chmod(0o600)
    assert pack(copy) == first
    assert pack(shutil.copytree(copy, home / "other" / "b")) != first


def test_only_the_files_that_a_report_reads_are_archived_unchanged(home):
    study = home / "runs" / "a"
    run = study / "rope-0"
    listed = read_manifest(run)
    RunRecord(run, listed).update(files={**(listed.files or {}), "checkpoint.pt": "0" * 64})
    before = {f"a/{path.relative_to(study)}": path.read_bytes() for path in study.rglob("*.*")}
    (run / "checkpoints").mkdir()
    for name in ("checkpoint.pt", "checkpoints/step-1.pt", "log.txt", "notes.csv", "../.report.lock"):
        (run / name).write_text("of somebody's own")
    assert contents(pack(study)) == {name: content for name, content in before.items() if ".lock" not in name}


def test_run_directories_take_precedence_over_archives(home):
    runs = home / "runs"
    write_run(runs, "rope-0", study="b", config={"data": {"name": "stdlib"}})
    both = load_available("b,a", runs, None)
    path = home / "reports" / "a" / ARCHIVE
    path.parent.mkdir(parents=True)
    path.write_bytes(pack(runs / "a"))
    (runs / "a").rename(home / "gone")
    found = load_available("b,a", runs, home / "reports")
    assert [one.archive for one in found] == [None, path]
    assert tuple(replace(one, archive=None) for one in found) == both
    # A folder with a plan but no run is not a study with records.
    plan(runs, ["rope-9"], study="a")
    assert load_available("a", runs, home / "reports")[0].archive == path
    write_run(runs, "rope-9", study="a")
    (one,) = load_available("a", runs, home / "reports")
    assert (one.archive, [run.name for run in one.runs]) == (None, ["rope-9"])


def test_paths_of_the_machine_are_not_archived_but_links_to_wandb_are(home):
    runs, mine = home / "runs", "/home/somebody"
    link = "https://wandb.ai/somebody/poslab/runs/abc"
    write_run(
        runs,
        "told",
        study="a",
        config={"data": {"source": "text", "path": f"{mine}/texts/corpus.txt"}},
        reason=f"no file '{mine}/x y/a.txt'\nor file://{mine}//b.txt",
        notes=[f"{mine}/runs/a/told/metrics.csv is damaged and is made again"],
        wandb={"id": "abc", "url": link, "mode": "online", "failed": f"PATH={mine}:{mine}/bin"},
    )
    older = write_run(runs, "older", study="a", reason=f"{mine}/x") / "manifest.json"
    write_sealed(older, {**read_sealed(older), "format": 2})
    (write_run(runs, "torn", study="a") / "manifest.json").write_text(f'{{"reason": "{mine}/x"')
    command = f"python train.py data=text data.path={mine}/texts/corpus.txt"
    write_sealed(runs / "a" / "study.json", {"study": "a", "runs": ["told"], "commands": [command]})
    packed = pack(runs / "a")
    files = contents(packed)
    assert b"somebody/" not in b"".join(files.values()).replace(link.encode(), b"")
    assert b'"reason": "x"' in files["a/older/manifest.json"]
    records = unpack(packed, home / ARCHIVE, "a")
    found = {run.name: run for run in records.runs}
    told = found["told"]
    assert told.status == "done"  # its new seal and the checksums of its tables are right
    assert (told.config["data"]["path"], told.manifest.wandb.url) == ("corpus.txt", link)
    assert told.reason == "no file 'a.txt' or b.txt"
    assert records.commands == ("python train.py data=text data.path=corpus.txt",)
    assert (found["older"].status, found["torn"].status) == ("older", "unreadable")


PIECES = ("/", "//", ":", "a", "b.c", "~", " ", "=", "'", "\n", "\x00", "file:", "http:", "\u200b", "é")


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join))
@example("/a/file:///b/c")
@example("x:/a/b/c")
def test_cutting_a_path_twice_changes_nothing(text):
    """So a report from an archive equals that from the run directories."""
    assert without_paths(without_paths(text)) == without_paths(text)
    assert plain(without_paths(plain(text, 1000)), 1000) == plain(text, 1000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PYTHONPATH=/home/me/a:/home/me/b", "PYTHONPATH=a:b"),
        ("//home//me///a.txt or ~/x/a.txt", "a.txt or a.txt"),
        (
            "s3://bucket/a/b and wandb/offline-run and and/or",
            "s3://bucket/a/b and wandb/offline-run and and/or",
        ),
        ("nfs:/export/me/a.txt", "nfs:a.txt"),
        (
            "train.py --config-dir '/home/jane doe/conf' 'data.path=~/my texts/a b.txt' x=1",
            "train.py --config-dir 'conf' 'data.path=a b.txt' x=1",
        ),
        ("'data.path=/home/jane doe/corpus/' or '/home/jane doe/b/'", "'data.path=corpus' or 'b'"),
        ("'data.path=[/home/jane doe/a.txt,~/b c/d e.txt]'", "'data.path=[a.txt,d e.txt]'"),
        ("'data={path: /home/jane doe/a.txt, n: 1}'", "'data={path: a.txt, n: 1}'"),
        ("[https://host/a b/c] {a/b} 1/2, 3/4", "[https://host/a b/c] {a/b} 1/2, 3/4"),
    ],
)
def test_paths_are_cut_and_addresses_kept(text, shown):
    assert without_paths(text) == shown


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda packed: packed[:-1], "is damaged"),
        (lambda packed: packed[:900] + bytes([packed[900] ^ 1]) + packed[901:], "is damaged"),
        (
            lambda packed: archive(("b/rope-0/manifest.json", contents(packed)["a/rope-0/manifest.json"])),
            "has no record of a run of study=a",
        ),
        (with_more(header("a/x/big.csv", size=8**11 - 1)), "is damaged"),
        (with_more("a/../../y.csv", b"z"), "is damaged"),
        (with_more(header("a/x/y.csv", tarfile.SYMTYPE, "/etc/passwd")), "is damaged"),
    ],
)
def test_a_changed_archive_is_refused_in_one_line(home, change, expected):
    path = home / "reports" / "a" / ARCHIVE
    path.parent.mkdir(parents=True)
    path.write_bytes(change(pack(home / "runs" / "a")))
    shutil.rmtree(home / "runs")
    before = sorted(home.parent.rglob("*"))
    with pytest.raises(ReportError) as refused:
        load_available("a", home / "runs", home / "reports")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sorted(home.parent.rglob("*")) == before


def test_a_manifest_cannot_list_files_outside_its_folder(home):
    directory = home / "runs" / "a" / "rope-0"
    manifest = read_manifest(directory)
    RunRecord(directory, manifest).update(files={**(manifest.files or {}), "../../x.csv": "0" * 64})
    run = load_run(directory)
    assert (run.status, run.reason) == ("unreadable", "manifest.json lists a file outside its folder")
    records = unpack(pack(home / "runs" / "a"), home / ARCHIVE, "a")
    assert {run.name: run.reason for run in records.runs}["rope-0"] == run.reason


@pytest.mark.parametrize("text", ['{"a": ' * 20_000, '{"seed": ' + "9" * 5000 + ","])
def test_a_sealed_text_that_is_not_json_is_damaged(home, text):
    """A manifest from somebody else, with a valid seal."""
    head, _, tail = (text + sealed({"format": 3})[1:]).rpartition('"sha256": "')
    empty = f'{head}"sha256": "{"0" * 64}{tail[64:]}'
    digest = hashlib.sha256(empty.encode()).hexdigest()
    path = home / "runs" / "a" / "rope-0" / "manifest.json"
    path.write_text(f'{head}"sha256": "{digest}{tail[64:]}')
    assert load_run(path.parent).reason == "manifest.json is damaged"
