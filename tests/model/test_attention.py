"""Every attention compared with the sums of its formula, outputs and every gradient, in float64."""

import pytest
import torch

from poslab.model.attention import Site, flash, linear
from poslab.model.kernels import cpu_causal
from poslab.model.kernels.strips import STRIP
from poslab.model.positions import Geometry
from support.attentions import BiasAndGates, Case, assert_same, parts, sizes_kept
from support.models import ATTENTIONS, PAIRS, POSITIONS, SCHEMES, make_gpt, pairs_that_work, ropes_once
from support.pairwise import all_pairs, pairwise

# A scheme for each way of flash on a CPU, and the name of the kernel.
KERNELS = {
    "rope": "torch flash (cpu)",
    "pope": "torch flash (cpu)",
    "carope": "torch flash (cpu)",
    "t5": "torch flash, sliding bias (cpu)",
    "kerple": "torch flash, sliding bias (cpu)",
    "fox": "strips",
    "fire": "strips, checkpointed",
    "inkling": "torch flash, near bias (cpu)",
    "wall": "strips, checkpointed",
}
MIXERS = ["retention", "gated_linear", "gated_delta", "hybrid"]  # without a matrix of weights


def by_the_formula(attend, q, k, v, site):
    """Compute the sums of the formula, one query after the other: the reference of every attention."""
    scheme, geometry, positions, length = site.scheme, site.scheme.geometry, site.positions, q.shape[-2]
    bias = scheme.pairwise_bias(positions, positions)
    kernel = attend.form == "O(L)"
    if kernel:
        phi_q, phi_k = attend.feature_map(q, True), attend.feature_map(k, False)
    else:
        phi_q, phi_k = scheme.logit_features(q), scheme.logit_features(k)
    turned_q = turned(scheme.rotate_queries(phi_q, positions), site.angles)
    turned_k = turned(scheme.rotate_keys(phi_k, positions), site.angles)
    rows = []
    for i in range(length):
        seen = [
            j
            for j in range(i + 1 if geometry.causal else length)
            if geometry.window is None or abs(int(positions[i] - positions[j])) < geometry.window
        ]
        added = torch.zeros(len(seen))
        if site.log_gates is not None:
            added = torch.stack([site.log_gates[..., j + 1 : i + 1].sum(dim=-1) for j in seen], dim=-1)
        if bias is not None:
            added = added + bias[:, i, seen]
        if site.content_bias is not None:
            r, table = site.content_bias
            numbers = torch.nn.functional.pad(table, (0, int(positions[-1]) + 1))
            added = added + r[..., i, :] @ numbers[:, positions[i] - positions[seen]]
        products = (turned_q[..., i, None, :] * turned_k[..., seen, :]).sum(dim=-1)
        if kernel:
            top = added.exp() * products
            bottom = added.exp() * (phi_q[..., i, None, :] * phi_k[..., seen, :]).sum(dim=-1)
        else:
            top = bottom = (products * q.shape[-1] ** -0.5 + added).exp()
        rows.append((top[..., None] * v[..., seen, :]).sum(dim=-2) / bottom.sum(dim=-1, keepdim=True))
    return torch.stack(rows, dim=-2)


def turned(x, angles):
    """Return x with its pairs (c, c + K/2), as complex numbers, turned by the angles of a site, if any."""
    if angles is None:
        return x
    pairs = torch.complex(*x.chunk(2, dim=-1)) * torch.exp(1j * angles)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


GEOMETRIES = {
    "causal": {},
    "two-sided": {"causal": False},
    "window": {"window": 5},
    "two-sided window": {"causal": False, "window": 5},
}
# Their formulas are in test_parity_formulas.py and test_parity_by_content.py.
BY_PAIRS = {"cope", "wall", "stick_breaking", "path"}
CASES = [(*pair, "causal") for pair in ropes_once(PAIRS) if pair[0] not in BY_PAIRS]
CASES += [
    (*pair, seen)
    for seen, geometry in GEOMETRIES.items()
    for pair in ropes_once(pairs_that_work(Geometry(24, 3, 1000, layers=4, **geometry)))
    if geometry and pair[0] not in BY_PAIRS
]
# These schemes rotate the features: as many as the width of a head.
CASES += [(pos, {"kind": "performer", "features": 8}, "causal") for pos in ("pope", "carope")]


@pytest.mark.parametrize(("pos", "attention", "seen"), CASES)
def test_every_pair_equals_its_formula(pos, attention, seen, monkeypatch):
    monkeypatch.setitem(linear.CHUNK, "cpu", 4)
    Case(pos, 13, **GEOMETRIES[seen]).check(attention, by_the_formula)


@pytest.mark.parametrize(
    ("pos", "attention", "last", "seen"),
    [
        *((*case, "causal") for case in [*all_pairs(ropes_once(PAIRS), [1, 6]), ("rope", "linear", 7)]),
        *(("t5", attention, 6, "two-sided") for attention in ("flash", "linear", "softmax")),
    ],
)
def test_the_last_tokens_only_get_the_same_output_as_among_all(pos, attention, last, seen):
    """Up to half of the tokens by rows of weights, beyond that by the whole output."""

    def alone(attend, *arguments):
        return attend.attend_last(*arguments, last)

    def among_all(attend, *arguments):
        return attend.attend(*arguments)[..., -last:, :]

    Case(pos, 13, **GEOMETRIES[seen]).check(attention, among_all, alone)


@pytest.mark.parametrize("length", [1, 2, STRIP - 1, STRIP, STRIP + 1])
@pytest.mark.parametrize("pos", [*KERNELS, BiasAndGates])
def test_flash_is_softmax_at_the_edges_of_strips(pos, length):
    Case(pos, length).check("flash")


@pytest.mark.parametrize("pos", ["rope", "pope", "alibi", "none"])
def test_flash_accepts_heads_of_width_two(pos):
    """Rotated, they are not contiguous in memory."""
    tokens, logits = torch.arange(12).reshape(2, 6), []
    for attention in ("flash", "softmax"):
        logits.append(make_gpt(POSITIONS[pos], ATTENTIONS[attention], width=8)(tokens))
    torch.testing.assert_close(logits[0], logits[1])


@pairwise(
    "pos, kernel, how",
    [
        ("rope", "torch flash, in one call (cpu)"),
        ("t5", "strips"),
        ("alibi", "strips"),
        ("inkling", "strips, checkpointed"),
    ],
    ["missing", "with other arguments"],
)
def test_flash_without_private_operators_is_the_same_and_names_its_kernel(pos, kernel, how, monkeypatch):
    case, ran = Case(pos, 150), []

    def noted(attend, *arguments):
        output = attend.attend(*arguments)
        ran.append(attend.kernel)
        return output

    before = case.outputs_and_gradients("flash", noted)
    for name in ("forward_kernel", "backward_kernel"):
        monkeypatch.setattr(cpu_causal, name, None if how == "missing" else lambda q, k, v: (q, k))
    monkeypatch.setattr(cpu_causal, "available", cpu_causal.available.__wrapped__)
    monkeypatch.setattr(flash, "available", cpu_causal.available)
    assert_same(case.outputs_and_gradients("flash", noted), before)
    assert ran[1] == kernel != ran[0]


@pytest.mark.parametrize("pos", KERNELS)
def test_flash_stores_no_square_matrix_and_names_its_kernel(pos):
    assert max(sizes_kept(pos, "flash", 4 * STRIP)) < (4 * STRIP) ** 2
    attend, scheme, _ = parts(pos, "flash")
    case = Case(pos, 5)
    attend.attend(case.q, case.k, case.v, Site.of(scheme, torch.arange(5), case.x))
    assert attend.kernel == KERNELS[pos]


# Every scheme and every attention: test_arms.py.
WHOLE = [("learned", "flash"), ("bipe_alibi", "softmax"), ("fox", "linear"), ("as_command_a", "linear")]


@pytest.mark.parametrize(("pos", "attention"), [*WHOLE, *(("none", name) for name in MIXERS)])
def test_a_gpt_is_causal(pos, attention):
    """A changed token changes its own and all later logits, and no earlier one."""
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS[attention])
    tokens = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 25] = (changed[0, 25] + 1) % 50
    difference = (gpt(tokens) - gpt(changed)).abs().amax(dim=-1)[0]
    assert difference[:25].max() < 1e-9
    assert (difference[25:] > 1e-9).all()
