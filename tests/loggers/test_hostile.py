"""Hostile names and texts: W&B's client sends them as text that W&B accepts."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.loggers.dashboard.contents import from_records
from poslab.loggers.dashboard.publish import publish as publish_dashboard
from poslab.loggers.fetch.account import open_account
from poslab.loggers.send.card import of_run
from poslab.loggers.send.mirror import mirror_run
from poslab.loggers.send.report import publish
from poslab.loggers.wandb import wandb_options
from poslab.record.schema import METRICS
from support.hostile import COMMANDS, HOSTILE, RUNS
from support.records import plan, write_run
from support.runs import TRACKED, tracked_request
from support.wandb_server.server import online, serve

EVERY = " ".join(HOSTILE)
STUDY = "a" + 33 * "-._"  # the longest that a command accepts


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a run, a report and dashboards of a study that has each text in every possible place."""
    folder = tmp_path_factory.mktemp("hostile")
    runs = folder / "runs"
    asked = tracked_request(question="x")
    data = {"source": EVERY, **{text: text for text in HOSTILE}}
    own = {"study": STUDY, "question": EVERY, "data": data}
    config = asked.config.model_copy(update=own)
    asked = replace(asked, config=config, pos=EVERY, attention=EVERY, non_default_settings=HOSTILE)
    point = dict.fromkeys(METRICS.columns, 1.0)
    directory = write_run(
        runs,
        RUNS[6] + RUNS[7],
        study=STUDY,
        config={"data": {"source": EVERY, "path": EVERY}},
        data={"name": EVERY, "fingerprint": EVERY, "vocabulary": 256},
        versions=dict.fromkeys(HOSTILE, EVERY),
        tables={METRICS: [{**point, "step": step, "tokens": 256 * step} for step in (50, 100)]},
        **dict.fromkeys(("pos", "attention", "reason", "device"), EVERY),
    )
    (directory / "checkpoint.pt").write_bytes(b"weights")
    plan(runs, [directory.name], EVERY, STUDY, commands=list(HOSTILE), question=EVERY)
    report = folder / "report"
    (report / "figures").mkdir(parents=True)
    (report / "index.html").write_text("<p>a page</p>")
    (report / "summary.csv").write_text(f'run,pos\n1,"\'{HOSTILE[15]}"\n')
    with serve(folder / "client") as serving, online(serving):
        options = wandb_options(asked.config.logger)
        card = of_run(asked, EVERY, EVERY, EVERY)
        card = replace(card, tags=(*card.tags, *HOSTILE))
        mirror_run(options, asked.config, card, directory)
        publish(STUDY, options, runs / STUDY, report)
        account = open_account(options.project, None)
        publish_dashboard(STUDY, from_records(STUDY, runs), account)
        yield serving


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts([*value, *value.values()])
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_wandb_accepts_the_names(server):
    assert len(server.runs) == 2
    for run in server.runs.values():
        assert 0 < len(run.display_name) <= 128
        assert all(0 < len(tag) <= 64 for tag in run.tags)
        assert run.group == STUDY
        assert len(run.notes or "") <= 500
        for text in (run.display_name, *run.tags, run.notes or ""):
            assert text.isprintable(), text
        assert [name for name in run.files if ".." in name or name.startswith("/")] == []
    (trained,) = (run for run in server.runs.values() if run.job_type == "train")
    assert len(trained.tags) > 30  # each text that has letters
    artifacts = server.committed()
    assert {artifact.type for artifact in artifacts} >= {"dataset", "evaluation", "model", "report"}
    for artifact in artifacts:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", artifact.collection)
        assert [name for name in artifact.files if ".." in name or name.startswith("/")] == []


def test_texts_contain_no_commands(server):
    """In a terminal, such as that of `wandb leet`, or in a spreadsheet that opens a table."""
    (trained,) = (run for run in server.runs.values() if run.job_type == "train")
    assert trained.config["data"][HOSTILE[0]] == HOSTILE[0]  # otherwise a text is sent unchanged
    assert trained.config["data"][HOSTILE[11].encode("unicode_escape").decode()]
    tables = [
        content for run in server.runs.values() for name, content in run.files.items() if "table" in name
    ]
    tables = list(map(json.loads, tables))
    for row in (row for table in tables for row in table["data"] if table["columns"] == ["run", "pos"]):
        assert row[1] == f"'{HOSTILE[15]}"
    sent = [(run.config, run.summary, run.history) for run in server.runs.values()]
    metadata = [artifact.metadata for artifact in server.committed()]
    specs = [view.spec for view in server.views.values()]
    for text in texts([*map(list, sent), metadata, specs, tables]):
        assert not COMMANDS.search(text), text


def test_a_project_name_that_wandb_refuses_is_refused_first():
    for name in (text for text in (*HOSTILE, "") if not text or re.search(r"[\s/\\#?%:]", text)):
        for key in ("project", "entity"):
            with pytest.raises(ConfigError, match="128 characters"):
                wandb_options({"wandb": {**TRACKED, key: name}})
