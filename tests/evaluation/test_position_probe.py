"""A linear probe finds the position if hidden states contain it, and nothing otherwise."""

import numpy as np
import pytest
import torch

from poslab.evaluation.losses import TOKENS_A_BATCH
from poslab.evaluation.position_probe import PENALTIES, read_positions
from support.models import ATTENTIONS, SCHEMES, make_gpt

L = 32


def windows(count, vocabulary=50):
    return np.random.default_rng(0).integers(0, vocabulary, (count, L + 1))


def model(pos, **changes):
    return make_gpt(SCHEMES[pos], ATTENTIONS["softmax"], context_length=L, **changes)


def explained(row, error="squared_error"):
    return 1 - row[error] / row["squared_deviation"]


def test_positions_along_one_direction_are_read_and_shuffled_ones_are_not():
    gpt = model("learned", layers=1)
    with torch.no_grad():
        gpt.scheme.table.copy_(torch.arange(L)[:, None] * torch.ones(1, 32))
    (row,) = read_positions(gpt, windows(100))
    assert (row["tokens"], row["fitted_windows"]) == (20 * L, 80)
    assert row["squared_deviation"] == pytest.approx(20 * L * (L**2 - 1) / 12)
    assert explained(row) > 0.95
    assert abs(explained(row, "shuffled_error")) < 0.05


@pytest.mark.parametrize("count", [3, 13, 40])
def test_the_probe_is_ridge_regression_evaluated_on_other_windows(count, monkeypatch):
    """In several batches of windows, the last of which is smaller."""
    monkeypatch.setitem(TOKENS_A_BATCH, "cpu", 3 * L)
    gpt = model("rope")
    x = gpt.embedding(torch.from_numpy(windows(count)[:, :-1]))
    for block in gpt.blocks[:2]:
        x = block(x, gpt.scheme, torch.arange(L))
    states = x.detach().double().numpy()
    row = read_positions(gpt, windows(count))[1]
    fitted = row["fitted_windows"]
    assert row["tokens"] == (count - fitted) * L
    chosen = max(1, fitted // 5)

    def error(fit, read, penalty):
        """Return the error by least squares on standardised features, with a row for the penalty of each."""
        flat, places = fit.reshape(-1, 32), np.tile(np.arange(L), len(fit))
        middle, scale = flat.mean(axis=0), flat.std(axis=0) * len(flat) ** 0.5
        a = np.concatenate([(flat - middle) / scale, penalty**0.5 * np.eye(32)])
        b = np.concatenate([places - places.mean(), np.zeros(32)])
        weights = np.linalg.lstsq(a, b, rcond=None)[0]
        answers = (read.reshape(-1, 32) - middle) / scale @ weights + places.mean()
        return np.square(answers - np.tile(np.arange(L), len(read))).sum()

    fit, choose = np.split(states[:fitted], [fitted - chosen])
    tried = {penalty: error(fit, choose, penalty) for penalty in PENALTIES}
    assert row["penalty"] == min(tried, key=tried.get)
    expected = error(states[:fitted], states[fitted:], row["penalty"])
    assert row["squared_error"] == pytest.approx(expected, rel=1e-4)


def test_too_few_windows_and_states_that_are_not_finite_have_no_row():
    assert read_positions(model("rope"), windows(2)) == []
    gpt = model("rope")
    with torch.no_grad():
        gpt.blocks[2].perceptron.project_perceptron.weight.fill_(torch.nan)
    assert [row["layer"] for row in read_positions(gpt, windows(10))] == [0, 1]
    assert not gpt.blocks[0]._forward_hooks
