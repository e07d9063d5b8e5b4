"""`poslab.evaluate` measures a trained model again in the caller's process."""

import pytest

import poslab
from support.runs import request


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return poslab.train(request(), tmp_path_factory.mktemp("runs") / "test")


def test_a_model_is_evaluated_to_another_length_once(run, tmp_path):
    longest = 2 * run.table("extrapolation")["length"].max() / run.manifest.config["context_length"]
    wanted = (f"evaluate.longest={longest:g}",)
    made = poslab.evaluate(run, *wanted, evaluations=tmp_path)
    assert made.table("extrapolation")["length"].max() == 2 * run.table("extrapolation")["length"].max()
    assert poslab.evaluate(run.path / "checkpoint.pt", *wanted, evaluations=tmp_path) == made
    assert poslab.RunDirectory(str(made.path)).manifest == made.manifest
    assert [path.name for path in tmp_path.glob("[!.]*")] == [made.path.name]


def test_an_error_is_raised_and_recorded(run, tmp_path, monkeypatch):
    def failing(*arguments: object) -> None:
        raise ZeroDivisionError("of no windows")

    monkeypatch.setattr("poslab.study.run.reevaluate.measure", failing)
    with pytest.raises(ZeroDivisionError, match="of no windows"):
        poslab.evaluate(run, evaluations=tmp_path)
    (record,) = tmp_path.glob("[!.]*")
    assert poslab.RunDirectory(record).manifest.status == "failed"
