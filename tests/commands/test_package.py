"""The package as it is installed: the command works anywhere, and another package's parts are trained."""

import subprocess
from functools import partial

import pytest

from poslab.commands.command_line import COMMANDS
from poslab.record.manifest import read_manifest
from support.commands import environment, rows, tiny
from support.packages import installed_wheel, write_package


@pytest.fixture(scope="session")
def poslab(tmp_path_factory):
    """The command of the wheel."""
    return installed_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def run(poslab, tmp_path_factory):
    """Gives commands of the wheel in an empty directory, with another package on the path."""
    cwd = tmp_path_factory.mktemp("empty")
    path = write_package(tmp_path_factory.mktemp("mine"))

    def command(program, *arguments):
        return subprocess.run(
            [str(program), *arguments],
            cwd=cwd,
            env={**environment(cwd), "PYTHONPATH": str(path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def give(*arguments):
        return command(poslab, *arguments)

    give.cwd, give.path = cwd, path
    give.python = partial(command, poslab.with_name("python"))
    return give


SETTINGS = [each for each in tiny(trainer__max_steps=2, evaluate__validations=1) if "data" not in each]
SETTINGS += ["data=verse", "logger=local", "runs=elsewhere/runs", "reports=elsewhere/reports"]


@pytest.fixture(scope="session")
def study(run):
    return run("train", "-m", "pos=rope,slope", "attention=sharp", *SETTINGS)


def test_a_study_with_another_packages_parts_lies_where_it_is_asked_for(study, run):
    assert study.returncode == 0, study.stderr
    report = run.cwd / "elsewhere" / "reports" / "ablation"
    made = {row["pos"]: row for row in rows(report / "summary.csv")}
    assert {pos: (row["status"], row["attention"]) for pos, row in made.items()} == {
        "rope": ("done", "sharp"),
        "slope": ("done", "sharp"),
    }
    page = (report / "report.md").read_text()
    assert "verse of mine" in page
    assert "poslab train -m pos=rope,slope attention=sharp" in page
    assert "runs=elsewhere/runs reports=elsewhere/reports" in page
    assert "poslab report study=ablation" in page
    assert "python train.py" not in page
    assert not {"runs", "reports", "multirun", "outputs"} & {path.name for path in run.cwd.iterdir()}
    (directory,) = (run.cwd / "elsewhere/runs/ablation").glob("slope-*/")
    config = read_manifest(directory).config
    assert config["pos"] == {"scheme": "mine.slope", "slope": 0.5}
    assert not {"runs", "reports"} & config.keys()


def test_a_measurement_is_one_file_and_shows_in_csv_summary_page_and_tracker(study, run):
    assert study.returncode == 0, study.stderr
    report = run.cwd / "elsewhere" / "reports" / "ablation"
    for row in rows(report / "summary.csv"):
        folder = run.cwd / "elsewhere" / "runs" / "ablation" / row["run"]
        table = rows(folder / "surprise.csv")
        assert [point["position"] for point in table] == ["0", "1", "2"]
        nats = sum(float(point["nll"]) for point in table) / sum(float(point["tokens"]) for point in table)
        assert float(row["surprise"]) == pytest.approx(nats)
        assert "surprise.csv" in read_manifest(folder).files
    assert {row["arm"] for row in rows(report / "surprise_arms.csv")} == {"rope", "slope"}
    page = (report / "report.md").read_text()
    assert "Nats that the model spends on the first tokens of windows." in page
    code = (
        "import sys; from pathlib import Path\n"
        "from poslab.record.reader import load_run\n"
        "from poslab.loggers.send.charts import axes, chart_rows, summary\n"
        "found = load_run(Path(sys.argv[1]))\n"
        "print(axes()['surprise/*'], 'surprise' in summary(found))\n"
        "print(*(row['surprise/nats'] for row in chart_rows(found) if 'surprise/nats' in row))"
    )
    shown = run.python("-c", code, str(folder))
    assert shown.returncode == 0, shown.stderr
    first, second = shown.stdout.splitlines()
    assert first == "surprise/position True"
    points = [float(point["nll"]) / float(point["tokens"]) for point in table]
    assert [float(value) for value in second.split()] == pytest.approx(points)


def test_the_other_commands_find_the_study_and_a_change_of_the_packages_source_is_seen(study, run):
    assert run("status", "runs=elsewhere/runs").stdout.splitlines() == ["ablation", "2 runs: 2 done"]
    again = run("report", "study=ablation", "runs=elsewhere/runs", "reports=again")
    assert again.returncode == 0, again.stderr
    assert (run.cwd / "again/ablation/index.html").exists()
    (directory,) = (run.cwd / "elsewhere/runs/ablation").glob("slope-*/")
    ended = run("evaluate", f"checkpoint={directory}", "evaluations=measured", "logger=local")
    assert ended.returncode == 0, ended.stderr
    assert "the same numbers, to the last digit" in ended.stdout
    assert len(list((run.cwd / "measured").glob("*/manifest.json"))) == 1
    helper = run.path / "mine" / "helper.py"
    helper.write_text(f"{helper.read_text()}\nVERSION = 2\n")
    changed = run("train", "-m", "pos=rope,slope", "attention=sharp", *SETTINGS)
    assert "1 of 2 runs are finished" in changed.stderr
    assert len(list((run.cwd / "elsewhere/runs/ablation").glob("slope-*/"))) == 2


def test_a_scheme_of_another_package_is_checked_and_in_the_grid(run):
    checked = run("check-scheme", "mine.slope", "slope=0.25")
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "all passed"), checked.stdout
    assert "under attention=sharp: causal" in checked.stdout
    # By its file, mine/conf/pos/slope.yaml, which has the name that the package declares.
    assert run("check-scheme", "mine.slope").stdout == run("check-scheme", "slope").stdout == checked.stdout
    (run.path / "mine" / "bare.py").write_text((run.path / "mine" / "slope.py").read_text())
    assert "no option file that sets slope: add slope=VALUE" in run("check-scheme", "mine.bare").stderr
    assert "| `slope` |" in run("grid").stdout
    (run.path / "mine" / "ahead.py").write_text(
        "from poslab.model.positions import Scheme\n"
        "class Ahead(Scheme):\n"
        "    def embed(self, x, positions):\n        return x + x.mean(dim=1, keepdim=True)\n"
    )
    refused = run("check-scheme", "mine.ahead")
    assert refused.returncode == 1
    assert "embed gives a token something of later ones" in refused.stdout


def test_a_mixer_that_is_no_attention_is_trained_reported_and_in_the_grid(run):
    made = run("train", "pos=rope", "attention=mean", "study=mixed", *SETTINGS)
    assert made.returncode == 0, made.stderr
    page = (run.cwd / "elsewhere/reports/mixed/report.md").read_text()
    assert "No attention distance, since the mixer has no matrix of weights: " in page
    (directory,) = (run.cwd / "elsewhere/runs/mixed").glob("rope-*/")
    assert read_manifest(directory).kernel == "mean"
    checked = run("check-scheme", "none").stdout
    assert "under attention=mean: not tried: it has no matrix of weights" in checked
    assert "`mean`" in run("grid").stdout


def test_help_names_the_command_as_it_was_typed(run):
    everything = run("--help").stdout
    for command in COMMANDS:
        assert f"  poslab {command} " in everything
        assert run(command, "--help").stdout.count(f"poslab {command}") >= 1
    assert "slope" in run("train", "--help").stdout
    assert "python train.py" not in run("train", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "did you mean train?"),
        ("pos=alibi", "to train, begin with `poslab train`"),
        ("train pos=rope pos.scheme=mine.nowhere", "pos.scheme='mine.nowhere' is unknown"),
        ("train pos=rope pos.scheme=mine.helper", "must define one Scheme, not 0"),
        ("report", "train a study first: poslab train -m pos=rope,alibi"),
    ],
)
def test_mistakes_are_one_line(arguments, message, run):
    ended = run(*arguments.split())
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1), ended.stderr
    assert message in ended.stderr
