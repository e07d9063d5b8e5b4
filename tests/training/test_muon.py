"""Muon: the parameters that it updates, and its step compared with the formula and PyTorch's Muon."""

import pytest
import torch

from poslab.model.gpt import build
from poslab.study.run.budget import size_of
from poslab.study.run.plan import resolve
from poslab.training.module import LanguageModel
from support.models import SCHEMES
from support.runs import request

SIZES = {"layers": 2, "width": 32, "heads": 4, "query_groups": 2, "mlp": "swiglu"}


def trained_by(optimizer, **model):
    """Return a model in float64 with gradients, and its optimizer."""
    wanted = request(
        pos=SCHEMES["t5"],
        model={**SIZES, "canon": ["a", "d"], **model},
        trainer__optimizer=optimizer,
        trainer__warmup_steps=0,
        trainer__learning_rate=1e-2,
    )
    config = resolve(wanted.config)
    gpt = build(config, 50)
    gpt.initialise(0)
    gpt.double()
    made = LanguageModel(gpt, config.trainer, seed=0).configure_optimizers()["optimizer"]
    return gpt, made


def move(gpt, optimizer, steps):
    """Take some steps with fixed gradients; return the gradients of each step by parameter."""
    stream = torch.Generator().manual_seed(3)
    given = []
    for _ in range(steps):
        for parameter in gpt.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=stream, dtype=torch.float64)
        given.append({name: parameter.grad for name, parameter in gpt.named_parameters()})
        optimizer.step()
    return given


def newton_schulz(matrix):
    """Orthogonalise as printed by Jordan et al., in float64."""
    x = matrix / matrix.norm()
    if matrix.shape[0] > matrix.shape[1]:
        x = x.T
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def stacked(name, matrix):
    """Return the matrices stacked in one: queries, keys and values, or the two halves of SwiGLU."""
    if name.endswith("query_key_value.weight"):
        return matrix.split([32, 16, 16])
    return matrix.chunk(2) if name.endswith("expand.weight") else (matrix,)


def test_two_steps_follow_the_formula_for_hidden_matrices_and_adamw_for_others():
    gpt, optimizer = trained_by("muon", tied=False)
    twin, adamw = trained_by("adamw", tied=False)
    before = {name: parameter.detach().clone() for name, parameter in gpt.named_parameters()}
    gradients = move(gpt, optimizer, 2)
    move(twin, adamw, 2)
    by_adamw = dict(twin.named_parameters())
    for name, parameter in gpt.named_parameters():
        if not name.startswith("blocks.") or parameter.ndim != 2:
            torch.testing.assert_close(parameter, by_adamw[name], atol=0, rtol=1e-12)
            continue
        expected, momentum = before[name], torch.zeros_like(parameter)
        for given in gradients:
            momentum = 0.95 * momentum + 0.05 * given[name]
            update = 0.05 * given[name] + 0.95 * momentum
            moved = [0.2 * max(part.shape) ** 0.5 * newton_schulz(part) for part in stacked(name, update)]
            expected = expected * (1 - 1e-2 * 0.1) - 1e-2 * torch.cat(moved)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-13, rtol=1e-11)


def test_a_single_matrix_changes_as_with_pytorchs_muon_up_to_rounding():
    gpt, optimizer = trained_by("muon")
    twin, _ = trained_by("muon")
    names = [f"blocks.{layer}.attention.project_attention.weight" for layer in range(2)]
    matrices = [twin.get_parameter(name) for name in names]
    theirs = torch.optim.Muon(matrices, lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    before = gpt.get_parameter(names[0]).detach().clone()
    move(gpt, optimizer, 2)
    move(twin, theirs, 2)
    moved = (gpt.get_parameter(names[0]) - before).norm()
    for name in names:
        difference = gpt.get_parameter(name) - twin.get_parameter(name)
        assert difference.norm() < 0.03 * moved


def test_the_estimated_state_has_one_moment_for_each_hidden_matrix():
    gpt, _ = trained_by("muon", canon=[])
    hidden = sum(parameter.numel() for parameter in gpt.blocks.parameters() if parameter.ndim == 2)
    adamw, muon = (
        # With a batch for which training takes more memory than an evaluation.
        size_of(resolve(request(model=SIZES, trainer__optimizer=name, trainer__batch_size=512).config))
        for name in ("adamw", "muon")
    )
    assert adamw.needs[0].bytes - muon.needs[0].bytes == pytest.approx(4 * hidden, rel=0.05)
