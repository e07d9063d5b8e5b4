"""Training: it learns, it is the same again from the same seed, and every setting of it counts."""

import math

import pytest
import torch
from conftest import ATTENTIONS, PAIRS, POSITIONS, SCHEMES, request

from poslab.config import Config
from poslab.data import prepare
from poslab.model import build
from poslab.module import LanguageModel, learning_rate_share
from poslab.positions.randomised import Randomised
from poslab.training import DivergedError, TrainingBatches, train


def curve(wanted, on_step=lambda *progress: None):
    """(training loss, validation loss) in nats a token, a row a validation."""
    config = resolved(wanted.config)
    corpus = prepare(config.data)
    rows = []
    train(build(config, corpus.vocabulary), config, corpus, rows.append, on_step)
    return [
        (row["train_nll"] / row["train_tokens"], row["validation_nll"] / row["validation_tokens"])
        for row in rows
    ]


def resolved(config: Config) -> Config:
    precision = "float32" if config.trainer.precision == "auto" else config.trainer.precision
    return config.model_copy(update={"trainer": config.trainer.model_copy(update={"precision": precision})})


@pytest.mark.parametrize(("pos", "attention"), PAIRS)
def test_every_pair_learns_in_20_steps(pos, attention):
    layers = 4 if SCHEMES[pos]["scheme"] == "schedule" else 2
    losses = curve(request(pos=SCHEMES[pos], attention=ATTENTIONS[attention], model__layers=layers))
    assert len(losses) == 5
    assert losses[-1][1] < losses[0][1] - 0.2


def test_same_seed_same_curve_to_the_bit_and_another_seed_another():
    assert curve(request()) == curve(request())
    assert curve(request()) != curve(request(seed=1))


def test_positions_are_drawn_by_the_seed_and_the_step(monkeypatch):
    """Randomised positions: the same curve from the same seed, whatever else has drawn random numbers."""
    wanted = request(pos=POSITIONS["rope_randomised"])
    first = curve(wanted)
    torch.manual_seed(99)
    assert curve(wanted) == first
    drawn = []
    place = Randomised.place
    monkeypatch.setattr(
        Randomised, "place", lambda self, *rest: drawn.append(place(self, *rest)) or drawn[-1]
    )
    curve(wanted)
    training = [tuple(each.tolist()) for each in drawn if len(each) == 32]
    assert len(set(training)) == 20 + 1  # another set each step, and the one of validation
    in_halves = curve(request(pos=POSITIONS["rope_randomised"], trainer__accumulate=2))
    assert in_halves[-1] == pytest.approx(first[-1], rel=1e-6)


CHANGES = {
    "max_steps": 10,
    "batch_size": 4,
    "learning_rate": 3e-3,
    "schedule": "constant",
    "warmup_steps": 10,
    "weight_decay": 10.0,
    "beta2": 0.5,
    "clip_norm": 1e-3,
    "precision": "bfloat16",
}
BY_DESIGN_WITHOUT_EFFECT = {"accumulate", "accelerator", "compile"}


def test_every_setting_of_the_trainer_changes_the_curve():
    config = request().config
    assert set(type(config.trainer).model_fields) == CHANGES.keys() | BY_DESIGN_WITHOUT_EFFECT
    before = curve(request())
    for key, value in CHANGES.items():
        assert curve(request(**{f"trainer__{key}": value})) != before, key


def test_accumulating_changes_memory_alone():
    whole, parts = curve(request()), curve(request(trainer__accumulate=4))
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_batches_are_a_function_of_seed_and_step():
    config = request(trainer__accumulate=2).config
    batches = TrainingBatches(config, prepare(config.data))
    assert len(batches) == 40
    again = TrainingBatches(config, prepare(config.data))
    for index in (39, 0, 17):  # in any order
        assert torch.equal(batches[index], again[index])
    whole = TrainingBatches(request().config, prepare(config.data))
    assert torch.equal(torch.cat([batches[6], batches[7]]), whole[3])


def test_a_loss_that_is_no_number_stops_the_run():
    with pytest.raises(DivergedError, match="not a number at step"):
        curve(request(trainer__learning_rate=1e30, trainer__warmup_steps=0))


def test_validations_are_spread_and_end_with_the_last_step():
    config = resolved(request(trainer__max_steps=17, evaluate__validations=5).config)
    rows = []
    corpus = prepare(config.data)
    train(build(config, corpus.vocabulary), config, corpus, rows.append, lambda *progress: None)
    assert [row["step"] for row in rows] == [4, 7, 11, 14, 17]
    assert rows[-1]["tokens"] == 17 * 8 * 32
    assert sum(row["train_tokens"] for row in rows) == 17 * 8 * 32


def test_decay_is_for_matrices_only():
    config = resolved(request(pos=SCHEMES["t5"]).config)
    module = LanguageModel(build(config, 256), config.trainer, seed=0)
    decayed, free = module.configure_optimizers()["optimizer"].param_groups
    assert decayed["weight_decay"] == 0.1
    assert free["weight_decay"] == 0
    assert all(parameter.ndim >= 2 for parameter in decayed["params"])
    assert all(parameter.ndim == 1 for parameter in free["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(list(module.parameters()))


def test_schedules():
    def shares(schedule):
        share = learning_rate_share(
            request(trainer__schedule=schedule, trainer__max_steps=105).config.trainer
        )
        return [share(step) for step in range(105)]

    cosine, constant, wsd = map(shares, ("cosine", "constant", "wsd"))
    for each in (cosine, constant, wsd):
        assert each[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert constant[5:] == [1.0] * 100
    assert cosine[55] == pytest.approx(0.55)
    assert cosine[-1] == pytest.approx(0.1, abs=1e-3)
    assert wsd[5:85] == [1.0] * 80
    assert wsd[95] == pytest.approx(0.5)
    assert 0 < wsd[-1] < 0.06


def test_the_bar_is_told_every_step():
    steps = []
    curve(
        request(trainer__accumulate=2),
        on_step=lambda step, loss, rate: steps.append((step, loss())),
    )
    assert [step for step, _ in steps] == list(range(1, 21))
    assert steps[0][1] == pytest.approx(math.log(256), rel=0.05)  # a fresh model knows nothing
