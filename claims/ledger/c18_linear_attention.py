"""What a rotation does to the denominator of linear attention, and what linear attention costs."""

import math
from dataclasses import dataclass

import pandas
import torch
from torch.utils.flop_counter import FlopCounterMode

from claims import parts
from claims.contract import (
    BLOG,
    LECTURE,
    ROFORMER,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    Verdict,
    control,
    exactly,
    in_parts,
)
from claims.formatting import small
from claims.studies import DENOMINATORS, Studies, setting
from poslab import Scheme

LENGTH, SAMPLES = 512, 16
SHORT, LONG = 1024, 2048  # tokens that operations are counted at
QUADRATIC, LINEAR = 1.95, 1.1  # exponents of what is called quadratic, and linear


def denominators(of: Scheme, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The rotated denominator of each query over the plain one: what the weights of its keys sum to."""
    weights = parts.attention("linear", of).weights(q, k)
    sums: torch.Tensor = weights.sum(dim=-1)
    return sums


@dataclass(frozen=True)
class Trained:
    """Counts of trained models with linear attention under RoPE, summed over seeds and heads, by layer."""

    layers: tuple[int, ...]
    vanished: tuple[float, ...]  # share of the queries with a rotated denominator at or below 0
    negative: tuple[float, ...]  # share of the weights below 0
    queries: int
    lowest: float
    setting: str

    @property
    def text(self) -> str:
        def span(shares: tuple[float, ...]) -> str:
            ends = f"{100 * min(shares):.2g}", f"{100 * max(shares):.2g}"
            return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"

        return (
            f"trained, {self.queries:,} queries a layer: at or below 0 in {span(self.vanished)} by layer, "
            f"the lowest {self.lowest:.2f} of the plain one; {span(self.negative)} of the weights are below "
            f"0 ({self.setting})"
        )


def _trained(studies: Studies) -> Trained | None:
    """What the runs of the study on record counted; None where none did."""
    results = studies.results(DENOMINATORS.study)
    heads = [] if results is None else results.rows("rotated_denominators", arm=results.reference)
    if results is None or not heads:
        return None
    by_layer = pandas.DataFrame(heads).groupby("layer")
    sums = by_layer[["vanished", "queries", "negative", "weights"]].sum()
    return Trained(
        tuple(sums.index),
        tuple(sums["vanished"] / sums["queries"]),
        tuple(sums["negative"] / sums["weights"]),
        int(sums["queries"].iloc[0]),
        min(head["lowest"] for head in heads),
        setting(results),
    )


def _negative(studies: Studies) -> Judgement:
    # All but the first key are small under elu + 1; three tokens on, the fastest pair has turned by 3 rad.
    q = torch.full((1, 1, 4, 2), 10.0, dtype=torch.float64)
    k = torch.tensor([10.0, -20.0, -20.0, -20.0], dtype=torch.float64)[:, None].expand(1, 1, 4, 2)
    chosen = float(denominators(parts.rope(2), q, k)[0, 0, 3])
    shares, lines = [], []
    for width, scale in ((16, 1.0), (16, 4.0), (32, 1.0), (32, 4.0)):
        q, k = parts.normal(2, SAMPLES, 1, LENGTH, width, scale=scale)
        ratios = denominators(parts.rope(width), q, k)
        shares.append((width, scale, float((ratios <= 0).double().mean())))
        lowest = ratios.amin(dim=(0, 1)).cummin(dim=0).values
        lines.append(
            Line(f"K = {width}, spread {scale:.0f}", tuple(range(1, LENGTH + 1)), tuple(lowest.tolist()))
        )
    listed = ", ".join(
        f"{100 * share:.2g} % (K = {width}, spread {scale:.0f})" for width, scale, share in shares
    )
    trained = _trained(studies)
    measured = "" if trained is None else f"; {trained.text}"
    figures = [
        Figure("rotated_denominators",
               f"The lowest rotated denominator so far, of {SAMPLES} random sequences",
               "Position of the query", "Over the plain denominator", tuple(lines), log_x=True),
    ]  # fmt: skip
    why = "How often it would in trained models was not measured yet."
    if trained is not None:
        layers = tuple(float(layer) for layer in trained.layers)
        of = {"denominators at or below 0": trained.vanished, "weights below 0": trained.negative}
        figures.append(
            Figure("trained_denominators", "Linear attention under RoPE in trained models",
                   "Layer", "Share, %",
                   tuple(Line(label, layers, tuple(100 * value for value in share))
                         for label, share in of.items())),
        )  # fmt: skip
        often = max(trained.vanished)
        why = (
            f"In trained models it did for up to {100 * often:.2g} % of a layer's queries, all seeds "
            "together: what the sentence fears happens in training, too."
            if often
            else "In the trained models that were measured it never did: the caution changed nothing there."
        )
    return Judgement(
        exactly(chosen < 0),
        f"chosen q, k: {chosen:.2f} of the plain denominator; Gaussian q, k, {SAMPLES} x {LENGTH} queries: "
        f"at or below 0 in {listed}{measured}"
        .replace("-", "−"),
        f"It could, as four tokens show, and on Gaussian inputs it is rare. {why}"
        if chosen < 0
        else "The rotated denominator stays positive in the example that was chosen to turn it.",
        tuple(figures),
        missing=() if trained else (DENOMINATORS,),
    )  # fmt: skip


def operations(kind: str, of: Scheme, length: int) -> int:
    """Multiplications and additions of one attention over `length` tokens, as PyTorch counts them."""
    q, k, v = parts.normal(3, 1, 1, length, 16).float()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        parts.attention(kind, of)(q, k, v)
    return int(counter.get_total_flops())


def _bucket() -> tuple[float, ...]:
    """Return which number of a bias's table each distance up to 128 reads, from a table of 0, 1, 2, ..."""
    counting = parts.scheme("t5", 16, buckets=32, max_distance=128, rate=30.0)
    with torch.no_grad():
        for table in counting.parameters():
            table.copy_(torch.arange(table.numel()).reshape(table.shape))
        bias = counting.bias(torch.arange(129))
    assert bias is not None
    return tuple((bias[0].double() / math.sqrt(16)).round().tolist())


def _exponent(kind: str, of: Scheme) -> float:
    return math.log2(operations(kind, of, LONG) / operations(kind, of, SHORT))


def _biased() -> Scheme:
    """T5 with a table that matters."""
    scheme = parts.scheme("t5", 16, length=LENGTH, buckets=32, max_distance=128, rate=30.0)
    with torch.no_grad():
        for table in scheme.parameters():
            table.copy_(parts.normal(*table.shape))
    return scheme.double()


def _bias_is_linear(studies: Studies) -> Judgement:
    t5 = _biased()
    q, k, v = parts.normal(3, 1, 1, LENGTH, 16)
    attention = parts.attention("linear", t5)
    with torch.no_grad():
        off = float((attention(q, k, v) - attention.weights(q, k) @ v).abs().max())
    buckets = _bucket()
    control(
        buckets[:17] == tuple(range(17)) and buckets.index(31) == 113 and max(buckets) == 31,
        "T5's published buckets: one each up to 16 tokens, the last from 113 tokens on",
    )
    control(off < 1e-9, "linear attention under T5 as the masked product of all pairs")
    biased = {
        name: _exponent("linear", scheme)
        for name, scheme in (("t5", t5), ("alibi", parts.scheme("alibi", 16)))
    }
    turned = _exponent("linear", parts.rope(16))
    return in_parts(
        Part(
            "An additive bias is a term of a logit, and linear attention has no logits.",
            Verdict.HOLDS,
            "by definition: its weights are products of features, not exponentials of a sum",
        ),
        Part(
            "So a bias such as T5's forces it back to O(L²).",
            exactly(biased["t5"] > LINEAR),
            f"as a factor exp(bias) on a weight, operations from {SHORT:,} to {LONG:,} tokens grow as "
            f"T^{biased['t5']:.2f}; the result is exact to {small(off)}",
        ),
        Part(
            "RoPE is one of the few schemes that it takes.",
            exactly(max(biased["alibi"], biased["t5"]) > LINEAR),
            f"T^{turned:.2f} under RoPE and T^{biased['alibi']:.2f} under ALiBi; schemes of the input change "
            "nothing in it",
        ),
        why="No. Nothing can be added to a logit that is not there, but the bias can multiply each weight as "
        "exp(bias), which is what it does under softmax: an analogue, since the weights are not softmax's. A "
        "factor that is constant, or falls by the same share a token, from some distance on needs exact "
        "weights for the near keys and one decayed sum for all others: O(L), for T5 and ALiBi. Any bias that "
        "depends only on the distance takes O(L log L) (Luo et al. 2021, arXiv 2106.12566)."
        if max(biased.values()) <= LINEAR
        else "Under an additive bias the operations grow faster than the length.",
        figures=(Figure("t5_buckets", "T5's buckets: which number of its table a distance reads",
                        "Distance, tokens", "Bucket",
                        (Line("bucket", tuple(range(129)), buckets),), stepped=True),),
    )  # fmt: skip


def _costs(studies: Studies) -> Judgement:
    none = parts.scheme("none", 16)
    softmax, linear = _exponent("softmax", none), _exponent("linear", none)
    grow = f"operations from {SHORT:,} to {LONG:,} tokens grow as"
    return in_parts(
        Part("Softmax attention costs O(L²).", exactly(softmax > QUADRATIC), f"{grow} T^{softmax:.2f}"),
        Part("Linear attention costs O(L).", exactly(linear < LINEAR), f"{grow} T^{linear:.2f}"),
        why="Counted, not timed. Memory is another matter: flash attention is softmax with O(L) memory. "
        "benchmarks/ measures time and memory up to 32,768 tokens."
        if linear < LINEAR
        else "The operations of linear attention grow faster than the length.",
    )


CLAIMS = (
    Claim(
        18,
        "A rotated denominator could vanish or turn negative, so RoPE turns only the numerator of "
        "linear attention.",
        (LECTURE, ROFORMER),
        "For some queries and keys the rotated denominator is at or below 0.",
        "The sum of linear attention's weights, with a rotated numerator and a plain denominator: on "
        "four chosen tokens, on Gaussian queries and keys, and by layer in the trained models of the study "
        "denominators.",
        "Larger models, other texts and Performer's features.",
        _negative,
        exact=True,
    ),
    Claim(
        19,
        "An additive bias such as T5's forces linear attention back to O(L²); RoPE is one of the few "
        "schemes that it takes.",
        (LECTURE, BLOG),
        "Under T5 the operations of linear attention grow as the square of the length.",
        "Operations of one linear attention under T5, ALiBi and RoPE, and its result against the masked "
        "product of all pairs.",
        "Time and memory at longer lengths: python benchmarks/attention.py.",
        _bias_is_linear,
        question="Does a bias such as T5's make linear attention quadratic?",
        asked="b",
        exact=True,
    ),
    Claim(
        20,
        "Softmax attention costs O(L²), linear attention O(L).",
        (LECTURE,),
        "Twice the length takes four times the operations under softmax, and twice under linear attention.",
        "Operations of one attention over 1,024 and 2,048 tokens, as PyTorch counts them.",
        "Time and memory at longer lengths: python benchmarks/attention.py.",
        _costs,
        exact=True,
    ),
)  # fmt: skip
