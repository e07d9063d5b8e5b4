"""Training learns, is repeatable from its seed, and every setting has an effect."""

import math
import threading
from hashlib import sha256

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from poslab.config.compose import arms
from poslab.data.cache import prepare
from poslab.data.windows import windows_at
from poslab.model.gpt import build
from poslab.model.positions.randomised import Randomised
from poslab.study.run.plan import resolve
from poslab.training.batches import TrainingBatches
from poslab.training.module import LanguageModel, learning_rate_share
from support.models import ATTENTIONS, CONF, POSITIONS, SCHEMES, make_gpt
from support.runs import request, trained
from support.texts import options, write_short_documents


@pytest.fixture(autouse=True)
def bfloat16_on_any_cpu(monkeypatch):
    """Accept a CPU without instructions for bfloat16, which is refused only for its speed."""
    monkeypatch.setattr("poslab.study.run.plan.cpu_has_bfloat16", lambda: True)


def brief(**changes):
    """Return a training of eight steps, with a validation after the 2nd, 4th, 5th, 7th and 8th."""
    return request(**{"trainer__max_steps": 8, "trainer__warmup_steps": 2, **changes})


def curve(wanted):
    """Return (training loss, validation loss) in nats per token for each validation."""
    return [
        (row["train_nll"] / row["train_tokens"], row["validation_nll"] / row["validation_tokens"])
        for row in trained(wanted)[1].rows
    ]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_curve_is_bit_identical_for_a_seed_and_differs_for_another(precision):
    first = curve(brief(trainer__precision=precision))
    assert curve(brief(trainer__precision=precision)) == first
    assert curve(brief(trainer__precision=precision, seed=1)) != first


def test_positions_are_drawn_anew_in_each_step(monkeypatch):
    drawn = []
    place = Randomised.place
    monkeypatch.setattr(
        Randomised, "place", lambda self, *rest: drawn.append(place(self, *rest)) or drawn[-1]
    )
    curve(brief(pos=POSITIONS["rope_randomised"]))
    training = [tuple(each.tolist()) for each in drawn if len(each) == 32]
    assert len(set(training)) == 8 + 1  # another set for each step, and that of validation


CHANGES = {
    "max_steps": 3,
    "batch_size": 4,
    "optimizer": "muon",
    "learning_rate": 3e-3,
    "schedule": "constant",
    "warmup_steps": 4,
    "weight_decay": 10.0,
    "beta2": 0.5,
    "clip_norm": 1e-3,
    "precision": "bfloat16",
    "scheme_rate": 2.0,
}
BY_DESIGN_WITHOUT_EFFECT = {
    "accumulate",
    "accelerator",
    "devices",
    "nodes",
    "strategy",
    "compile",
    "recompute",
    "checkpoint_seconds",
}


def test_every_setting_of_the_trainer_changes_the_curve():
    fields = type(request().config.trainer).model_fields
    assert fields.keys() == CHANGES.keys() | BY_DESIGN_WITHOUT_EFFECT
    four = {"pos": SCHEMES["t5"], "trainer__max_steps": 4}  # a scheme that learns
    before = curve(brief(**four))
    for key, value in CHANGES.items():
        assert curve(brief(**{**four, f"trainer__{key}": value})) != before, key
    four["pos"] = {**SCHEMES["t5"], "rate": 2 * SCHEMES["t5"]["rate"]}
    assert curve(brief(**four)) != before


def test_accumulation_changes_only_memory():
    """Also for a scheme that draws positions: all parts of a step have the same ones."""
    drawn = {"pos": POSITIONS["rope_randomised"]}
    whole, parts = curve(brief(**drawn)), curve(brief(**drawn, trainer__accumulate=4))
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def batches_of(accumulate=1, *share, **changes):
    config = request(trainer__accumulate=accumulate, **changes).config
    return TrainingBatches(config, prepare(config.data), *share)


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_another_step_and_another_seed_have_another_batch(objective):
    section = {"objective": arms(CONF / "objective")[objective]}
    first, second = (batches_of(**section)[step] for step in (0, 1))
    for other in (second, batches_of(seed=1, **section)[0]):
        assert not torch.equal(first.targets, other.targets)
        assert first.digest != other.digest


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_short_documents(tmp_path_factory.mktemp("text") / "short")


@pytest.mark.parametrize(
    ("objective", "windows"), [("causal", "joined"), ("causal", "packed"), ("masked", "joined")]
)
def test_processes_and_microbatches_share_one_batch(objective, windows, documents, monkeypatch):
    """Each reads only its own windows; unequal numbers of targets count by their number."""
    changes = {"data": {**options("text", path=str(documents)), "windows": windows}}
    changes |= {"objective": arms(CONF / "objective")[objective]}
    whole, halves, read = batches_of(**changes)[3], batches_of(2, **changes), []

    def counted(tokens, starts, size):
        read.append(len(starts))
        return windows_at(tokens, starts, size)

    monkeypatch.setattr("poslab.data.windows.windows_at", counted)
    for parts in (
        [halves[6], halves[7]],
        [batches_of(1, 3, rank, 2, **changes)[0] for rank in (0, 1)],
    ):
        assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
        assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)
    assert read == [8, 4, 4]
    assert {part.scored_by_all for part in parts} == {whole.scored}
    assert sum(part.weight for part in parts) == pytest.approx(2)


def test_prefetched_batches_are_the_same_and_end_with_the_training():
    ahead, stopped = (batches_of(2, 0, 0, 1, True) for _ in range(2))
    assert len(ahead) == 40
    for batch, same in zip(batches_of(2), ahead, strict=True):
        assert torch.equal(batch.tokens, same.tokens)
        assert torch.equal(batch.targets, same.targets)
        assert batch.digest == same.digest
    stopped = iter(stopped)
    next(stopped)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
    stopped.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_an_error_while_prefetching_is_raised():
    class Broken(TrainingBatches):
        def __getitem__(self, index):
            if index == 5:
                raise OSError("the file is gone")
            return super().__getitem__(index)

    made = []
    with pytest.raises(OSError, match="the file is gone"):
        made.extend(Broken(request().config, prepare(request().config.data), prefetch=True))
    assert len(made) == 5


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, 8),  # nothing is left to do
        ({"pos": POSITIONS["rope_randomised"], "trainer__accumulate": 2}, 3),  # draws positions
        ({"attention": ATTENTIONS["performer"], "trainer__schedule": "wsd"}, 4),  # has a random buffer
        ({"trainer__precision": "bfloat16"}, 3),
        ({"trainer__optimizer": "muon", "pos": SCHEMES["t5"], "trainer__accumulate": 2}, 3),
        ({"trainer__optimizer": "muon", "attention": ATTENTIONS["hybrid"], "model__layers": 4}, 3),
    ],
)
def test_training_resumes_from_a_state_to_the_same_bits(changes, first):
    """From steps with and without a validation."""
    whole, observer = trained(brief(**changes), keep=(first,))
    torch.manual_seed(99)  # state that a fresh process does not share
    again, rest = trained(brief(**changes), observer.states[first])
    assert rest.steps == observer.steps[first:]
    assert [_exact(row) for row in rest.rows] == [_exact(row) for row in observer.rows if row["step"] > first]
    assert rest.ended.batches == observer.ended.batches
    _same_weights(whole, again)


def _exact(row):
    """Return the values of a row that do not depend on the clock."""
    return {key: value for key, value in row.items() if key not in ("seconds", "tokens_per_second")}


def _same_weights(one, other):
    for (name, tensor), same in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(tensor, same), name


def test_training_reports_every_step_and_validations_up_to_the_last_step():
    wanted = request(trainer__max_steps=17, evaluate__validations=5, trainer__accumulate=2)
    observer = trained(wanted)[1]
    assert [step for step, _ in observer.steps] == list(range(1, 18))
    assert observer.steps[0][1] == pytest.approx(math.log(256), rel=0.05)  # a fresh model knows nothing
    assert [row["step"] for row in observer.rows] == [4, 7, 11, 14, 17]
    assert observer.rows[-1]["tokens"] == 17 * 8 * 32
    assert sum(row["train_tokens"] for row in observer.rows) == 17 * 8 * 32
    batches, digest = TrainingBatches(wanted.config, prepare(wanted.config.data)), ""
    for index in range(2 * 17):
        digest = sha256(digest.encode() + batches[index].digest).hexdigest()
    assert observer.ended.batches == digest


def groups(**settings):
    """A model and the optimizer's groups."""
    config = resolve(request(**settings).config)
    module = LanguageModel(build(config, 256), config.trainer, seed=0)
    return module.gpt, module.configure_optimizers()["optimizer"].param_groups


def test_weight_decay_is_for_matrices_outside_the_scheme():
    gpt, (decayed, free, learned) = groups(pos=SCHEMES["t5"])
    assert decayed["weight_decay"] == 0.1
    assert free["weight_decay"] == learned["weight_decay"] == 0
    assert all(parameter.ndim >= 2 for parameter in decayed["params"])
    assert all(parameter.ndim == 1 for parameter in free["params"])
    assert [*map(id, learned["params"])] == [*map(id, gpt.scheme.parameters())]
    assert len(decayed["params"]) + len(free["params"]) + 1 == len(list(gpt.parameters()))


def test_schemes_inside_a_scheme_keep_their_rates():
    mixed = {
        "scheme": "schedule",
        "layers": ["near", "far"],
        "schemes": {"near": {**SCHEMES["t5"], "rate": 7.0}, "far": {**SCHEMES["kerple"], "rate": 2.0}},
    }
    gpt, (_, _, low, high) = groups(pos=mixed)
    assert high["initial_lr"] == pytest.approx(3.5 * low["initial_lr"])
    assert [len(low["params"]), len(high["params"])] == [2, 1]
    assert high["params"][0] is gpt.scheme.layer(0).bucket_bias


def test_schedules():
    def shares(schedule):
        trainer = request(trainer__schedule=schedule, trainer__max_steps=105).config.trainer
        return list(map(learning_rate_share(trainer), range(105)))

    cosine, constant, wsd = map(shares, ("cosine", "constant", "wsd"))
    for each in (cosine, constant, wsd):
        assert each[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert constant[5:] == [1.0] * 100
    assert cosine[55] == pytest.approx(0.55)
    assert cosine[-1] == pytest.approx(0.1, abs=1e-3)
    assert wsd[5:85] == [1.0] * 80
    assert wsd[95] == pytest.approx(0.5)
    assert 0 < wsd[-1] < 0.06


@pytest.mark.parametrize(
    ("pos", "attention"), [("rope", "flash"), ("bipe_alibi", "softmax"), ("t5", "linear"), ("none", "hybrid")]
)
def test_recomputed_blocks_have_the_same_gradients_and_store_less(pos, attention):
    tokens, targets = torch.randint(256, (2, 4, 64), generator=torch.Generator().manual_seed(0))
    stored, gradients = {}, {}
    for recompute in (False, True):
        gpt = make_gpt(POSITIONS[pos], ATTENTIONS[attention], vocabulary=256)
        gpt.recompute = recompute
        sizes = []
        with saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            loss = gpt(tokens, targets=targets)
        stored[recompute] = sum(sizes)
        loss.backward()
        gradients[recompute] = [parameter.grad for parameter in gpt.parameters()]
    for found, expected in zip(gradients[True], gradients[False], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert stored[True] < 0.5 * stored[False]
