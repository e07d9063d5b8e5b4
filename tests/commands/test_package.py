"""The installed package: its command works anywhere, also with parts of another package.

Commands of the wheel are fresh processes; tests that need no wheel run in this one.
"""

import re
import subprocess
import sys
from functools import partial

import pytest

from poslab.analysis.results import gather
from poslab.commands.command_line import COMMANDS
from poslab.config.option_files import package_folders
from poslab.config.registry import declared_modules
from poslab.loggers.send.charts import axes, chart_rows, summary
from poslab.measures import measurements
from poslab.paper.references import bibliography, cited, references
from poslab.paper.table import paper_table
from poslab.record.manifest import read_manifest
from poslab.record.reader import load_run
from support.commands import called, environment, read, tiny
from support.packages import installed_wheel, write_package

FOUND_ONCE = (declared_modules, package_folders, measurements, references)  # what a process looks up once


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Call commands of the wheel in an empty directory, with another package on the path."""
    poslab = installed_wheel(tmp_path_factory.mktemp("wheel"))
    cwd = tmp_path_factory.mktemp("empty")
    path = write_package(tmp_path_factory.mktemp("mine"))

    def give(*arguments):
        return subprocess.run(
            [str(poslab), *arguments],
            cwd=cwd,
            env={**environment(cwd), "PYTHONPATH": str(path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    give.cwd, give.path = cwd, path
    return give


@pytest.fixture
def beside(run, monkeypatch):
    """Call commands in this process, where the other package is found anew and then forgotten."""
    monkeypatch.syspath_prepend(run.path)
    mine = [name for name in sys.modules if name.partition(".")[0] == "mine"]  # from another test's folder
    for name in mine:
        monkeypatch.delitem(sys.modules, name)
    for found in FOUND_ONCE:
        found.cache_clear()
    yield partial(called, cwd=run.cwd, script="poslab")
    monkeypatch.undo()
    for found in FOUND_ONCE:
        found.cache_clear()


SETTINGS = [each for each in tiny(trainer__max_steps=2, evaluate__validations=1) if "data" not in each]
SETTINGS += ["data=verse", "logger=local", "launcher=inline"]
SETTINGS += ["runs=elsewhere/runs", "reports=elsewhere/reports"]


@pytest.fixture(scope="module")
def study(run):
    """Two arms with another package's parts; the second has no matrix of weights."""
    ended = run("train", "-m", "pos=slope", "attention=sharp,mean", *SETTINGS)
    assert ended.returncode == 0, ended.stderr
    return run.cwd / "elsewhere" / "reports" / "ablation"


def made(run, attention):
    (directory,) = (run.cwd / "elsewhere/runs/ablation").glob(f"slope-{attention}-*/")
    return directory


def test_a_study_with_another_packages_parts_is_written_to_the_requested_folder(study, run):
    arms = [(row["pos"], row["attention"], row["status"]) for row in read(study / "summary.csv")]
    assert sorted(arms) == [("slope", "mean", "done"), ("slope", "sharp", "done")]
    page = (study / "report.md").read_text()
    assert "verse of mine" in page
    assert "No attention distance, since the mixer has no matrix of weights: " in page
    assert "poslab train -m pos=slope attention=sharp,mean" in page
    assert "runs=elsewhere/runs reports=elsewhere/reports" in page
    assert "poslab report study=ablation" in page
    assert "python train.py" not in page
    assert not {"runs", "reports", "multirun", "outputs"} & {path.name for path in run.cwd.iterdir()}
    manifest = read_manifest(made(run, "mean"))
    assert manifest.kernel == "mean"
    assert manifest.config["pos"] == {"scheme": "mine.slope", "slope": 0.5}
    assert manifest.versions["mine"] == "1.0"
    assert not {"runs", "reports"} & manifest.config.keys()


def test_a_measurement_is_one_file_and_appears_in_csv_summary_page_paper_and_tracker(study, run, beside):
    for row in read(study / "summary.csv"):
        folder = run.cwd / "elsewhere" / "runs" / "ablation" / row["run"]
        table = read(folder / "surprise.csv")
        assert [point["position"] for point in table] == ["0", "1", "2"]
        nats = sum(float(point["nll"]) for point in table) / sum(float(point["tokens"]) for point in table)
        assert float(row["surprise"]) == pytest.approx(nats)
        assert "surprise.csv" in read_manifest(folder).files
    arms = {row["arm"] for row in read(study / "surprise_arms.csv")}
    assert arms == {"slope / sharp", "slope / mean"}
    assert "Nats per token on the first three tokens of windows." in (study / "report.md").read_text()
    ((_, lines),) = paper_table(gather("ablation", run.cwd / "elsewhere/runs", None), ["surprise"]).blocks
    measured = sorted(float(row["surprise"]) for row in read(study / "summary.csv"))
    assert sorted(float(line[1][:4]) for line in lines) == pytest.approx(measured, abs=0.011)
    found = load_run(folder)
    of_run = [row for row in read(study / "surprise_nats.csv") if row["arm"] == f"slope / {found.attention}"]
    assert [row["position"] for row in of_run] == ["0", "1", "2"]
    assert axes()["surprise/*"] == "surprise/position"
    assert "surprise" in summary(found)
    shown = [row["surprise/nats"] for row in chart_rows(found) if "surprise/nats" in row]
    assert shown == pytest.approx([float(point["nll"]) / float(point["tokens"]) for point in table])
    assert shown == pytest.approx([float(row["mean"]) for row in of_run])


def test_the_other_commands_find_the_study(study, run, beside):
    beside("report", "study=ablation", "runs=elsewhere/runs", "reports=again")
    assert (run.cwd / "again/ablation/index.html").exists()
    ended = beside("evaluate", f"checkpoint={made(run, 'sharp')}", "evaluations=measured", "logger=local")
    assert "the same numbers, to the last digit" in ended.stdout
    assert len(list((run.cwd / "measured").glob("*/manifest.json"))) == 1


def test_a_change_of_the_packages_source_is_detected(study, run, beside):
    asked = ("train", "pos=slope", "attention=sharp", *SETTINGS, "plan=true")
    assert "1 already finished" in beside(*asked).stdout
    helper = run.path / "mine" / "helper.py"
    helper.write_text(f"{helper.read_text()}\nVERSION = 2\n")
    assert "1 to start" in beside(*asked).stdout


def test_parts_of_another_package_are_checked_and_in_the_grid(beside):
    checked = beside("check-scheme", "slope")  # by its file, mine/conf/pos/slope.yaml
    assert "FAILED" not in checked.stdout
    assert "under attention=sharp: causal" in checked.stdout
    assert "not tried  under attention=mean: it has no matrix of weights" in checked.stdout
    grid = beside("grid").stdout
    assert "| `slope` |" in grid
    assert "`mean`" in grid
    assert not re.search(r"the (scheme|mixer)\.", grid)  # and not the name of the module


def test_help_lists_the_settings_of_another_package(beside):
    told = beside("train", "--help", "settings").stdout
    for setting in ("pos.slope=0.5 [slope]", "attention.sharpness=2 [mine.sharp]", "data.lines=3000 [verse]"):
        assert f"\n{setting}\n" in told
    assert beside("train", "--help", "objective.ahead").stdout.startswith("objective.ahead=2 [later]")


def test_a_part_of_another_package_is_cited_as_runs_record_it(study, run, beside):
    recorded = read_manifest(made(run, "sharp")).config["pos"]["scheme"]
    assert cited("scheme", recorded) == ("doe2026",)
    subjects = [("scheme", "rope"), ("scheme", recorded), ("scheme", "unknown")]
    entries = bibliography(subjects)
    assert "@article{doe2026," in entries
    assert "keywords" not in entries


def test_a_scheme_is_checked_by_its_module(run, beside):
    checked = beside("check-scheme", "mine.slope", "slope=0.25")
    assert "FAILED" not in checked.stdout
    (run.path / "mine" / "bare.py").write_text((run.path / "mine" / "slope.py").read_text())
    refused = beside("check-scheme", "mine.bare", status=2)
    assert "no option file that sets slope: add slope=VALUE" in refused.stderr
    (run.path / "mine" / "ahead.py").write_text(
        "from poslab.model.positions import Scheme\n"
        "class Ahead(Scheme):\n"
        "    def embed(self, x, positions):\n        return x + x.mean(dim=1, keepdim=True)\n"
    )
    refused = beside("check-scheme", "mine.ahead", status=1)
    assert "later tokens change what embed returns" in refused.stdout


def test_help_names_the_command_as_typed(run, tmp_path):
    def told(*arguments):
        return called(*arguments, cwd=tmp_path, script="poslab").stdout

    for command in COMMANDS:
        assert f"  poslab {command} " in told("--help")
        assert f"poslab {command}" in told(command, "--help")
    of_the_wheel = run("train", "--help").stdout
    assert "slope" in of_the_wheel
    assert "python train.py" not in of_the_wheel
