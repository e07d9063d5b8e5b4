"""A fault planted in the code under a computed claim changes its verdict, so a claim also tests the code."""

from collections.abc import Callable

import pytest
import torch

import poslab.model.attention
from claims.contract import Verdict, judge, ledger
from claims.studies import Studies
from poslab.model.attention import linear
from poslab.model.positions import alibi, rope, rope_ntk, rope_warped, rope_yarn, sinusoidal, t5
from poslab.model.positions.rope import RoPE

CLAIMS = {claim.number: claim for claim in ledger()}
COMPUTED = [number for number, claim in CLAIMS.items() if claim.exact]
OPEN = 4  # the printed digits are missing, so only its numbers can change
# The part that the fault changes, for claims with other parts that keep their verdicts.
PARTS = {5: "b", 6: "a", 12: "a", 13: "b", 14: "a", 17: "a", 20: "b", 23: "b"}

Fault = Callable[[pytest.MonkeyPatch], None]


def replaced(owner: object, name: str, change: Callable[..., object]) -> Fault:
    """Return a fault: `change` in place of `owner.name`, with the old function as its first argument."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        old = getattr(owner, name)
        patch.setattr(owner, name, lambda *arguments, **named: change(old, *arguments, **named))

    return plant


def changed(owner: object, name: str, value: object) -> Fault:
    return lambda patch: patch.setattr(owner, name, value)


def frequencies(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    return replaced(RoPE, "frequencies", lambda old, *at: change(old(*at)))


def turned(change: Callable[[torch.Tensor, str], torch.Tensor]) -> Fault:
    """Return a fault: RoPE with other phases, which may depend on the pairing of channels."""
    return replaced(rope, "turn", lambda old, x, phase, pairing: old(x, change(phase, pairing), pairing))


def encoding(change: Callable[..., object]) -> Fault:
    return replaced(sinusoidal.Sinusoidal, "encoding", change)


def single_precision(old, scheme, width, positions):
    return (positions.float()[:, None] * scheme.frequencies(width, positions).float()).double()


STILL, ALL_ALIKE = frequencies(torch.zeros_like), frequencies(torch.ones_like)
TWICE_AS_FAST = replaced(rope, "turns_at", lambda old, theta, distance: old(2 * theta, distance))
ONE_CHUNK = changed(linear, "CHUNK", {"cpu": 2**20})
WARP = changed(rope_warped, "WARPS", {"sqrt": torch.clone, "log": torch.log1p})
NO_BIAS = replaced(
    poslab.model.attention,
    "added_to_logits",
    lambda old, site, dtype, *tokens: torch.zeros(1, 1, 1, 1, dtype=dtype),
)

# The fault under each claim and the verdict that it leads to; 19.1 is a second one under claim 19.
FAULTS: dict[float, tuple[Fault, Verdict]] = {
    1: (TWICE_AS_FAST, Verdict.REFUTED),
    2: (TWICE_AS_FAST, Verdict.UNDECIDED),
    3: (STILL, Verdict.UNDECIDED),
    4: (TWICE_AS_FAST, Verdict.UNDECIDED),
    5: (turned(lambda phase, pairing: -phase), Verdict.REFUTED),
    6: (replaced(RoPE, "phases", lambda old, of, width, at: old(of, width, at.sqrt())), Verdict.REFUTED),
    7: (encoding(lambda old, scheme, at: old(scheme, 0 * at)), Verdict.REFUTED),
    8: (encoding(lambda old, *at: old(*at).roll(1, -1)), Verdict.REFUTED),
    9: (frequencies(lambda theta: theta.flip(0)), Verdict.HOLDS),
    10: (frequencies(torch.sqrt), Verdict.UNDECIDED),
    11: (STILL, Verdict.REFUTED),
    12: (replaced(rope, "turn", lambda old, x, phase, pairing: x), Verdict.HOLDS),
    13: (STILL, Verdict.REFUTED),
    14: (STILL, Verdict.REFUTED),
    15: (replaced(rope_ntk, "ntk", lambda old, theta, factor: theta / factor), Verdict.UNDECIDED),
    16: (replaced(rope_yarn, "yarn", lambda old, theta, factor, length: theta), Verdict.UNDECIDED),
    17: (WARP, Verdict.REFUTED),
    18: (replaced(RoPE, "rotate", lambda old, scheme, x, positions: x), Verdict.REFUTED),
    19: (ONE_CHUNK, Verdict.HOLDS),
    19.1: (
        replaced(t5.T5, "bucket", lambda old, scheme, distance: distance.clamp(max=31)),
        Verdict.UNDECIDED,
    ),
    20: (ONE_CHUNK, Verdict.REFUTED),
    21: (replaced(alibi, "slopes", lambda old, heads: [1.0] * heads), Verdict.UNDECIDED),
    22: (replaced(RoPE, "phases", single_precision), Verdict.HOLDS),
    23: (ALL_ALIKE, Verdict.REFUTED),
    24: (turned(lambda phase, pairing: -phase if pairing == "interleaved" else phase), Verdict.REFUTED),
    25: (NO_BIAS, Verdict.HOLDS),
    27: (
        replaced(RoPE, "rotate_keys", lambda old, scheme, k, at: old(scheme, k, 0 * at + at[-1])),
        Verdict.HOLDS,
    ),
    44: (ALL_ALIKE, Verdict.NOT_TESTED),
}


@pytest.fixture(scope="module")
def nothing(tmp_path_factory):
    """Studies in an empty folder."""
    empty = tmp_path_factory.mktemp("empty")
    return Studies(empty / "runs", empty / "reports")


def test_every_computed_claim_has_a_fault():
    assert sorted({int(number) for number in FAULTS}) == sorted(COMPUTED)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_the_verdict(fault, nothing, monkeypatch):
    number = int(fault)
    part = PARTS.get(number)
    before = judge(CLAIMS[number], nothing).part(part)
    plant, verdict = FAULTS[fault]
    plant(monkeypatch)
    after = judge(CLAIMS[number], nothing).part(part)
    assert after.verdict is verdict
    if number == OPEN:
        assert before.verdict is Verdict.NOT_TESTED
        assert after.value == "a control failed" != before.value
    else:
        assert before.verdict is not verdict
