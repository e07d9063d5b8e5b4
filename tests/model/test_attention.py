"""Every attention against plain references, outputs and every gradient, in float64."""

import pytest
import torch

from poslab.config.schema import ConfigError
from poslab.model.attention import Site, build_attention, flash
from poslab.model.kernels import cpu_causal
from poslab.model.kernels.strips import STRIP
from poslab.model.positions import Geometry, build_scheme
from support.attentions import (
    BiasAndGates,
    Case,
    assert_same,
    attended,
    masked,
    parts,
    sizes_kept,
    turned,
)
from support.models import ATTENTIONS, BY_TURNS, PAIRS, POSITIONS, SCHEMES, make_gpt
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
    """The sums as they are written, one query and one key at a time: the reference of every attention."""
    scheme, positions, log_gates = site.scheme, site.positions, site.log_gates
    length, rows = q.shape[-2], []
    bias = scheme.pairwise_bias(positions, positions)
    gates = torch.zeros(1, 1, length) if log_gates is None else log_gates
    kernel = attend.form == "O(L)"
    if kernel:
        phi_q, phi_k = attend.feature_map(q, True), attend.feature_map(k, False)
    else:
        phi_q, phi_k = scheme.logit_features(q), scheme.logit_features(k)
    turned_q = turned(scheme.rotate_queries(phi_q, positions), site.angles)
    turned_k = turned(scheme.rotate_keys(phi_k, positions), site.angles)
    for i in range(length):
        over, under = torch.zeros_like(v[..., 0, :]), torch.zeros_like(v[..., 0, :1])
        for j in range(i + 1):
            added = gates[..., j + 1 : i + 1].sum(dim=-1, keepdim=True)
            if bias is not None:
                added = added + bias[:, i, j, None]
            back = int(positions[i] - positions[j])
            if site.content_bias is not None and back < site.content_bias.table.shape[1]:
                r, table = site.content_bias
                added = added + (r[..., i, :] @ table[:, back])[..., None]
            product = (turned_q[..., i, :] * turned_k[..., j, :]).sum(-1, keepdim=True)
            if kernel:
                top = added.exp() * product
                bottom = added.exp() * (phi_q[..., i, :] * phi_k[..., j, :]).sum(-1, keepdim=True)
            else:
                top = bottom = (product * q.shape[-1] ** -0.5 + added).exp()
            over, under = over + top * v[..., j, :], under + bottom
        rows.append(over / under)
    return torch.stack(rows, dim=-2)


# They have formulas of their own in test_parity_formulas.py and test_parity_by_content.py.
BY_PAIRS = {"cope", "wall", "stick_breaking", "path"}


@pytest.mark.parametrize(("pos", "attention"), [pair for pair in PAIRS if pair[0] not in BY_PAIRS])
def test_every_pair_is_its_formula(pos, attention):
    case = Case(pos, 13)
    assert_same(
        case.outputs_and_gradients(attention, attended),
        case.outputs_and_gradients(attention, by_the_formula),
    )


@pytest.mark.parametrize(("pos", "attention", "last"), [*all_pairs(PAIRS, [1, 6]), ("rope", "linear", 7)])
def test_the_last_tokens_alone_get_what_they_get_among_all(pos, attention, last):
    """By rows of weights up to half of the tokens, and whole beyond."""
    case = Case(pos, 13)

    def alone(attend, *arguments):
        return attend.attend_last(*arguments, last)

    def among_all(attend, *arguments):
        return attend.attend(*arguments)[..., -last:, :]

    assert_same(
        case.outputs_and_gradients(attention, alone), case.outputs_and_gradients(attention, among_all)
    )


@pytest.mark.parametrize("attention", ["linear", "performer"])
@pytest.mark.parametrize("pos", ["kerple", "fire"])
def test_a_pair_without_a_fast_form_is_refused_and_says_what_to_choose(pos, attention):
    with pytest.raises(ConfigError, match=rf"pos.scheme={pos}.*attention=flash"):
        parts(pos, attention)


@pytest.mark.parametrize("pos", ["pope", "carope"])
def test_what_turns_a_heads_numbers_is_refused_for_another_number_of_random_features(pos):
    geometry = Geometry(32, 4, 64, layers=1)
    scheme = build_scheme(POSITIONS[pos], geometry).layer(0)
    with pytest.raises(ConfigError, match=r"choose attention\.features=8"):
        build_attention({"kind": "performer", "features": 16}, geometry, scheme)
    scheme.double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    attend = build_attention({"kind": "performer", "features": 8}, geometry, scheme)
    attend.draw(torch.Generator().manual_seed(0))
    drawn = torch.randn(3, 2, 4, 13, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    site = Site.of(scheme, torch.arange(13), drawn[0].transpose(1, 2).flatten(-2))
    assert_same([attend.attend(*drawn, site)], [by_the_formula(attend, *drawn, site)])


@pytest.mark.parametrize("attention", ["flash", "linear", "performer"])
@pytest.mark.parametrize("context_length", [20, 100])
def test_a_fast_form_is_the_plain_one_where_a_bias_by_content_has_ended(context_length, attention):
    case = Case("inkling", 2 * STRIP + 5, context_length=context_length)  # and ends after half as many tokens
    assert_same(
        case.outputs_and_gradients(attention, attended), case.outputs_and_gradients(attention, masked)
    )


@pytest.mark.parametrize("length", [1, 2, STRIP - 1, STRIP, STRIP + 1])
@pytest.mark.parametrize("pos", KERNELS)
def test_flash_is_softmax_at_the_edges_of_strips(pos, length):
    case = Case(pos, length)
    assert_same(
        case.outputs_and_gradients("flash", attended), case.outputs_and_gradients("softmax", attended)
    )


@pytest.mark.parametrize("pos", ["rope", "pope", "alibi", "none"])
def test_flash_takes_heads_of_two_numbers(pos):
    """Rotated, they do not lie side by side in memory."""
    tokens, logits = torch.arange(12).reshape(2, 6), []
    for attention in ("flash", "softmax"):
        logits.append(make_gpt(POSITIONS[pos], ATTENTIONS[attention], width=8)(tokens))
    torch.testing.assert_close(logits[0], logits[1])


def test_flash_adds_both_a_bias_by_both_positions_and_gates():
    case = Case(BiasAndGates, STRIP + 1)
    assert_same(
        case.outputs_and_gradients("flash", attended), case.outputs_and_gradients("softmax", attended)
    )


@pytest.mark.parametrize(
    ("pos", "dtype"),
    [
        *((pos, torch.bfloat16) for pos, attention in PAIRS if attention == "flash"),
        *((pos, torch.float32) for pos in KERNELS),
    ],
)
def test_flash_is_softmax_in_the_training_dtypes(pos, dtype):
    """Within 2e-5 in float32 and 2e-2 in bfloat16, whose numbers are 8e-3 apart at 1.

    SSMax multiplies logits here by up to 10, and the rounding of its queries with them.
    """
    case = Case(pos, 200, dtype=dtype)
    results = {}
    for attention in ("flash", "softmax"):
        attend, scheme, whole = parts(pos, attention)
        whole.to(torch.float32)
        site = Site.of(scheme, whole.place(200, None), case.x)
        results[attention] = attend.attend(case.q, case.k, case.v, site)
    assert results["flash"].dtype == dtype
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2 if pos != "ssmax" else 1e-1
    torch.testing.assert_close(results["flash"], results["softmax"], atol=tolerance, rtol=tolerance)


@pairwise(
    "pos, kernel, how",
    [("rope", "torch flash, in one call (cpu)"), ("t5", "strips"), ("alibi", "strips")],
    ["missing", "with other arguments"],
)
def test_flash_without_pytorchs_private_operators_is_the_same_and_says_so(pos, kernel, how, monkeypatch):
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
def test_flash_keeps_no_square_matrix_and_names_its_kernel(pos):
    assert max(sizes_kept(pos, "flash", 4 * STRIP)) < (4 * STRIP) ** 2
    attend, scheme, _ = parts(pos, "flash")
    case = Case(pos, 5)
    attend.attend(case.q, case.k, case.v, Site.of(scheme, torch.arange(5), case.x))
    assert attend.kernel == KERNELS[pos]


@pytest.mark.parametrize("pos", SCHEMES)
def test_shift_invariance_is_as_the_scheme_says(pos):
    """Content that repeats after 7 tokens gives the score of (i, j) again at (i + 7, j + 7), or does not.

    From token 7 on: a convolution over tokens finds none before the first.
    """
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS["softmax"])
    tokens = torch.arange(42)[None] % 7
    positions = gpt.scheme.place(42, None)
    gpt.scheme.read_tokens(tokens)
    embedded = gpt.scheme.embed(gpt.embedding(tokens), positions)
    same = []
    for index, block in enumerate(gpt.blocks):
        scheme, x = gpt.scheme.layer(index), block.norm_attention(embedded)
        q, k, _, site = block.attention.projected(x, Site(scheme, positions))
        scores = block.attention.scores(q, k, site)
        same.append(torch.allclose(scores[..., 14:, 14:], scores[..., 7:-7, 7:-7]))
    assert all(same) == gpt.scheme.shift_invariant


@pytest.mark.parametrize(("pos", "attention"), [*BY_TURNS, *(("none", name) for name in MIXERS)])
def test_a_gpt_is_causal(pos, attention):
    """A changed token changes its own logits and later ones, none before it; and the past is used."""
    gpt = make_gpt(SCHEMES[pos], ATTENTIONS[attention])
    tokens = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 25] = (changed[0, 25] + 1) % 50
    difference = (gpt(tokens) - gpt(changed)).abs().amax(dim=-1)[0]
    assert difference[:25].max() < 1e-9
    assert (difference[25:] > 1e-9).all()
