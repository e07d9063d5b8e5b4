"""A trained rotation under other frequencies gives further lines of the same run, which is unchanged."""

import copy

import pytest
import torch

from poslab.data.cache import prepare
from poslab.evaluation.extrapolation import evaluate
from poslab.model.gpt import build
from poslab.model.rescaling import METHODS, Rescaling
from poslab.study.run.plan import plan, resolve
from poslab.training.loop import without_positions
from poslab.training.trained import load_model
from support.commands import read
from support.models import POSITIONS
from support.runs import Told, make, request, trained

RESCALE = ["none", *METHODS]


# With these settings the losses past L depend on the rotation in more than their last digit.
READS_POSITIONS = {"trainer__max_steps": 60, "trainer__learning_rate": 5e-2}


def made(tmp_path, **changes):
    manifest = make(request(**changes), tmp_path)
    assert manifest.status == "done", manifest.reason
    return plan(request(**changes), tmp_path)


@pytest.fixture(scope="module")
def rescaled(tmp_path_factory):
    return made(tmp_path_factory.mktemp("rescaled"), evaluate__rescale=RESCALE, **READS_POSITIONS)


def losses(table, rescale=None):
    """Return the mean loss by protocol and multiple."""
    sums = {}
    for row in table:
        if row.get("rescale") == rescale:
            total = sums.setdefault((row["protocol"], row["multiple"]), [0.0, 0])
            total[0] += float(row["nll"])
            total[1] += int(row["tokens"])
    return {key: nll / tokens for key, (nll, tokens) in sums.items()}


def test_every_rescaling_is_a_line_of_the_same_run(rescaled):
    table = read(rescaled.directory / "rescaled.csv")
    plain = losses(read(rescaled.directory / "extrapolation.csv"))
    assert {row["rescale"] for row in table} == set(METHODS)
    assert {row["document"] for row in table} == {"0"}  # the task has one
    for method in METHODS:
        mine = losses(table, method)
        assert mine.keys() == plain.keys()
        assert mine["non_overlapping", "4"] != plain["non_overlapping", "4"]
    at_length = [losses(table, "dynamic")[protocol, "1"] for protocol in ("non_overlapping", "sliding")]
    assert at_length == pytest.approx([plain["non_overlapping", "1"], plain["sliding", "1"]], rel=1e-5)
    positions = read(rescaled.directory / "rescaled_position.csv")
    assert len(positions) == len(METHODS) * 4 * 32


def test_the_run_itself_is_the_same_with_and_without(rescaled, tmp_path):
    alone = made(tmp_path, **READS_POSITIONS)
    for name in ("metrics.csv", "extrapolation.csv", "position.csv"):
        timed = {"seconds", "tokens_per_second"}
        kept, again = (
            [{key: value for key, value in row.items() if key not in timed} for row in read(folder / name)]
            for folder in (alone.directory, rescaled.directory)
        )
        assert kept == again
    assert not (alone.directory / "rescaled.csv").exists()


@pytest.mark.parametrize("method", ["pi", "ntk", "dynamic", "yarn"])
def test_a_rescaled_rotation_equals_the_scheme_of_that_name(rescaled, method):
    """Weights trained under rope, evaluated as rope_pi, rope_ntk, rope_yarn and rope_dynamic."""
    config = rescaled.config
    section = {**POSITIONS[f"rope_{method}"], "factor": 1.0 if method == "dynamic" else 4.0}
    other = build(config.model_copy(update={"pos": section}), rescaled.corpus.vocabulary)
    other.load_state_dict(load_model(rescaled.directory).state_dict())
    found = evaluate(other, config, rescaled.corpus)
    for row, recorded in zip(
        found.lengths,
        (row for row in read(rescaled.directory / "rescaled.csv") if row["rescale"] == method),
        strict=True,
    ):
        assert row["nll"] == pytest.approx(float(recorded["nll"]), rel=1e-6)


def test_recalibration_trains_a_copy_without_positions():
    asked = request(evaluate__rescale=["none", "drop"], evaluate__recalibration_steps=20)
    config, corpus, (gpt, _) = resolve(asked.config), prepare(asked.config.data), trained(asked)

    def dropped(model):
        found = evaluate(model, config, corpus, rescaling=Rescaling("drop", 1.0))
        return losses(found.lengths)["non_overlapping", "1"]

    before, weights = dropped(gpt), copy.deepcopy(gpt.state_dict())
    other = without_positions(gpt, config, corpus, Told())
    assert other.scheme.dropped
    assert not gpt.scheme.dropped
    assert all(torch.equal(gpt.state_dict()[name], weight) for name, weight in weights.items())
    assert dropped(other) < before - 0.005
