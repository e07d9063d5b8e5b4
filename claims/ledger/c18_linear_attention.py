"""The rotated denominator of linear attention, and the cost of linear attention."""

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
SHORT, LONG = 1024, 2048  # lengths in tokens at which operations are counted
QUADRATIC, LINEAR = 1.95, 1.1  # an exponent above the first is quadratic, one below the second linear


def denominators(of: Scheme, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return the rotated denominator of each query over the plain one, the sum of its weights."""
    weights = parts.attention("linear", of).weights(q, k)
    sums: torch.Tensor = weights.sum(dim=-1)
    return sums


@dataclass(frozen=True)
class Trained:
    """Counts in trained models with linear attention under RoPE, summed over seeds and heads, by layer."""

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
            f"trained, {self.queries:,} queries per layer: at or below 0 in {span(self.vanished)} by layer, "
            f"the lowest {self.lowest:.2f} of the plain one; {span(self.negative)} of the weights are below "
            f"0 ({self.setting})"
        )


def _trained(studies: Studies) -> Trained | None:
    """Return the counts in the runs of the study on record, or None if none has them."""
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
    # elu + 1 of all keys but the first is small; three tokens later the fastest pair has turned by 3 rad.
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
               f"The lowest rotated denominator up to a position, over {SAMPLES} random sequences",
               "Position of the query", "Over the plain denominator", tuple(lines), log_x=True),
    ]  # fmt: skip
    why = "How often it happens in trained models was not measured."
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
            f"In trained models it happened for up to {100 * often:.2g} % of a layer's queries over all "
            "seeds, so the caution of the claim is justified in practice."
            if often
            else "In the measured trained models it never happened: the caution made no difference there."
        )
    return Judgement(
        exactly(chosen < 0),
        f"chosen q, k: {chosen:.2f} of the plain denominator; Gaussian q, k, {SAMPLES} x {LENGTH} queries: "
        f"at or below 0 in {listed}{measured}"
        .replace("-", "−"),
        f"It can, as four chosen tokens show; on Gaussian inputs it is rare. {why}"
        if chosen < 0
        else "The rotated denominator stays positive in the example that was chosen to make it negative.",
        tuple(figures),
        missing=() if trained else (DENOMINATORS,),
    )  # fmt: skip


def operations(kind: str, of: Scheme, length: int) -> int:
    """Return the multiplications and additions of one attention over `length` tokens, by PyTorch's count."""
    q, k, v = parts.normal(3, 1, 1, length, 16).float()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        parts.attention(kind, of)(q, k, v)
    return int(counter.get_total_flops())


def _bucket() -> tuple[float, ...]:
    """Return the bucket of each distance up to 128, read from a bias whose table is 0, 1, 2, ..."""
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
    """Return T5's scheme with random numbers in its table."""
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
        "T5's published buckets: one per distance up to 16 tokens, the last from 113 tokens on",
    )
    control(off < 1e-9, "linear attention under T5 as the masked product over all pairs")
    biased = {
        name: _exponent("linear", scheme)
        for name, scheme in (("t5", t5), ("alibi", parts.scheme("alibi", 16)))
    }
    turned = _exponent("linear", parts.rope(16))
    return in_parts(
        Part(
            "An additive bias is a term of a logit, and linear attention has no logits.",
            Verdict.HOLDS,
            "by definition: its weights are products of features, not exponentials of sums",
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
            f"T^{turned:.2f} under RoPE and T^{biased['alibi']:.2f} under ALiBi; schemes that act on the "
            "input leave it unchanged",
        ),
        why="No. Without logits nothing can be added to them, but each weight can be multiplied by "
        "exp(bias), as under softmax; this is an analogue, since the weights are not softmax's. If from some "
        "distance on the factor is constant or falls by the same share per token, exact weights for the near "
        "keys and one decayed sum for all others are enough: O(L), for T5 and ALiBi. Any bias that depends "
        "only on the distance takes O(L log L) (Luo et al. 2021, arXiv 2106.12566)."
        if max(biased.values()) <= LINEAR
        else "Under an additive bias the operations grow faster than the length.",
        figures=(Figure("t5_buckets", "T5's buckets: the index in its table by distance",
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
        why="Operations were counted, not timed. Memory differs: flash attention is softmax with O(L) "
        "memory. benchmarks/ measures time and memory up to 32,768 tokens."
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
        "The sum of linear attention's weights, with a rotated numerator and a plain denominator: for "
        "four chosen tokens, for Gaussian queries and keys, and by layer in the trained models of the study "
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
        "Operations of one linear attention under T5, ALiBi and RoPE, and its result compared with the "
        "masked product over all pairs.",
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
        "Operations of one attention over 1,024 and 2,048 tokens, by PyTorch's count.",
        "Time and memory at longer lengths: python benchmarks/attention.py.",
        _costs,
        exact=True,
    ),
)  # fmt: skip
