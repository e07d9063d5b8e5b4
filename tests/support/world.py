"""A small world of all that any command reads, and what each command makes of it, in this process."""

import io
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from poslab.config.option_files import Conf
from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.record.files import write_atomic
from poslab.record.kept import KEPT, load_kept, pack
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.measures import multiples
from poslab.record.reader import Records, ReportError, load
from poslab.record.study_list import enlist
from poslab.record.summary import row
from poslab.study.display.progress_file import ProgressFile, read_progress
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run import worker
from poslab.study.run.job import Job
from poslab.study.run.make import run
from poslab.study.run.plan import plan
from poslab.study.run.reevaluate import evaluate_again
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.status import show_status
from poslab.training.trained import read_trained_model
from support.models import CONF, POSITIONS
from support.runs import StopsAt, make, request, weights_digest

STUDIES = ("study", "other")
LOCAL = {"logger": "local"}
WANTED: dict[str, Any] = {
    "trainer__max_steps": 6,
    "trainer__checkpoint_seconds": 0.0,
    "model__layers": 1,
    "model__width": 16,
    "data__tokens": 6000,
    "evaluate__rescale": ["none", "pi"],
    "evaluate__longest": 2,
}


@dataclass(frozen=True)
class Seen:
    """What a command makes of the world: figures by what they are of, and what it says besides."""

    figures: Mapping[str, Any]
    said: str


Reader = Callable[[Path], Seen]


def wanted(study: str = STUDIES[0], seed: int = 0) -> Request:
    """Seed 0 is finished and seed 1 was stopped on its way; the other study has another text."""
    other = {"data__seed": 9, "pos": POSITIONS["alibi"]} if study != STUDIES[0] else {}
    rescale = {"evaluate__rescale": ["none"]} if other else {}
    return request(study, seed=seed, **{**WANTED, **other, **rescale})


def job(root: Path, seed: int, study: str = STUDIES[0]) -> Job:
    return plan(wanted(study, seed), root / "runs")


@contextmanager
def cache_of(root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSLAB_CACHE", str(root / "cache"))
        yield


def build(root: Path) -> None:
    """Two studies of two runs, their lists, kept records, evaluations, and what is remembered of them."""
    with cache_of(root), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for study in STUDIES:
            assert make(wanted(study), root / "runs").status == "done"
            stopped = job(root, 1, study)
            with pytest.raises(Stopped), Stopper().installed() as stopper:
                run(stopped, StopsAt(4), stopper)
            jobs = [job(root, 0, study), stopped]
            enlist(stopped.directory.parent, [each.directory.name for each in jobs], f"train {study}", study)
            progress = ProgressFile(stopped.directory)
            progress.begin("training")
            progress.write(0.5, 3, 6, 2.0 if study == STUDIES[0] else 3.0)
            evaluate_again(jobs[0].directory, LOCAL, Conf((CONF,)), root / "evaluations")
            write_atomic(request_file(jobs[0]), worker.request_text(jobs[0]))
            write_atomic(root / "reports" / study / KEPT, pack(root / "runs" / study))


def request_file(asked: Job) -> Path:
    return asked.directory.parent / ".launcher" / worker.request_name(asked.directory)


@contextmanager
def listening() -> Iterator[io.StringIO]:
    """What is printed inside, whichever way it goes."""
    heard = io.StringIO()
    with redirect_stdout(heard), redirect_stderr(heard):
        yield heard


def _reported(records: Records) -> Seen:
    figures: dict[str, Any] = {
        each.directory: row(each, None, multiples([each])) | {"rescaled": str(each.rescaled)}
        for each in records.runs
        if each.status == "done"
    }
    figures |= {each.directory: each.status for each in records.runs if each.status == "interrupted"}
    figures["list"] = (records.reference, records.question, records.commands)
    said = [f"{each.directory}: {each.reason}" for each in records.runs if each.directory not in figures]
    return Seen(figures, "\n".join(said))


def report(root: Path) -> Seen:
    """report.py study=study"""
    return _reported(load(STUDIES[0], root / "runs"))


def report_kept(root: Path) -> Seen:
    """report.py where runs/ is not"""
    return _reported(load_kept(root / "reports" / STUDIES[0] / KEPT, STUDIES[0]))


def status(root: Path) -> Seen:
    """train.py status: one line a run; the times that it tells are left out"""
    with listening() as heard:
        show_status(STUDIES[0], root / "runs", follow=False)
    return Seen({}, " ".join(heard.getvalue().split()))


def train_again(root: Path) -> Seen:
    """The study's command, for a finished run: what it finds damaged, and what it would train."""
    asked = job(root, 0)
    standing = asked.standing
    figures = {"identity": asked.identity, "status": standing.status} if standing.settled else {}
    return Seen(figures, "\n".join([*standing.damage, f"{asked.directory}: {standing.reason}"]))


def go_on(root: Path) -> Seen:
    """The study's command, for a run that was stopped: the weights that it ends with"""
    asked = job(root, 1)
    with listening() as heard:
        manifest = run(asked, RunDisplay("made", Console(quiet=True)), Stopper())
    figures = {"status": manifest.status, "batches": manifest.batches}
    return Seen({**figures, "weights": weights_digest(asked.directory)}, heard.getvalue())


def evaluate(root: Path) -> Seen:
    """train.py evaluate checkpoint=RUN: the record of the evaluation, made again where it is damaged"""
    folder = root / "evaluations"
    asked = job(root, 0)
    with listening() as heard:
        evaluate_again(asked.directory, LOCAL, Conf((CONF,)), folder)
    (directory,) = folder.glob(f"{asked.directory.name}-*")
    manifest = read_manifest(directory)
    assert manifest is not None
    assert damaged_files(directory, manifest.files) == []
    same = ("attention_distance.csv", "extrapolation.csv", "position.csv", "rescaled.csv")
    return Seen({name: manifest.tables[name] for name in same}, heard.getvalue())


def model(root: Path) -> Seen:
    """Whatever loads a trained model"""
    trained = read_trained_model(job(root, 0).directory)
    tensors = sha256(b"".join(tensor.numpy().tobytes() for tensor in trained.weights.values()))
    return Seen({"weights": tensors.hexdigest(), "run": trained.manifest.run}, "")


def prepare(root: Path) -> Seen:
    """Whatever reads the text"""
    with listening() as heard:
        corpus = job(root, 0).corpus
    tokens = sha256(corpus.train.tobytes() + corpus.validation.tobytes()).hexdigest()
    shape = (corpus.vocabulary, corpus.separator, corpus.validation_documents.tolist())
    figures = {"tokens": tokens, "shape": shape, "bytes": corpus.token_bytes.tolist()}
    figures["described"] = {**corpus.describe(), "text": corpus.decode(corpus.validation[:50])}
    return Seen(figures, heard.getvalue())


def work(root: Path) -> Seen:
    """The process of a run, which reads what is asked of it"""
    path = request_file(job(root, 0))
    with listening() as heard, pytest.MonkeyPatch.context() as patch:
        told: list[Any] = []
        patch.setattr(worker, "_make", lambda content, *rest: told.append(vars(content)) or 0)
        worker.main([str(path)])
    figures = {"asked": {**told[0], "directory": Path(told[0]["directory"]).name}} if told else {}
    return Seen(figures, heard.getvalue())


def progress(root: Path) -> Seen:
    """The progress of a run, a guess"""
    found = read_progress(job(root, 1).directory)
    return Seen({} if found is None else {"share": found.share, "loss": found.loss}, "")


def remembered(root: Path) -> Seen:
    """What planning remembers, a guess: what is not there is worked out anew"""
    asked = job(root, 0)
    figures: dict[str, Any] = {"identity": asked.identity, "config": asked.config.model_dump(mode="json")}
    return Seen(figures, "")


def seen(reader: Reader, root: Path) -> Seen:
    """What a command makes of the world in `root`; a refusal is what it says and no figure."""
    with cache_of(root):
        try:
            return reader(root)
        except (ConfigError, ReportError) as error:
            return Seen({}, str(error))


def copied(root: Path, folder: Path) -> Path:
    return Path(shutil.copytree(root, folder, symlinks=True))
