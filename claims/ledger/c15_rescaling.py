"""What NTK-aware scaling and YaRN are."""

import torch

from claims import parts
from claims.contract import BOOK, Claim, Figure, Judgement, Line, Part, control, exactly, in_parts
from claims.studies import Studies

HEAD, BASE, FACTOR, TRAINED = 64, 10_000.0, 8.0, 2048


def _theta() -> torch.Tensor:
    return parts.frequencies(parts.rope(HEAD, BASE))


def _rescaled(scheme: str, **options: object) -> torch.Tensor:
    """The frequencies of RoPE rescaled by FACTOR."""
    options |= {"base": BASE, "pairing": "half", "factor": FACTOR}
    return parts.frequencies(parts.scheme(scheme, HEAD, 1, 128, **options))


def _ntk(studies: Studies) -> Judgement:
    theta = _theta()
    slower = theta / _rescaled("rope_ntk")  # how many times slower each pair turns
    control(
        abs(float(slower[0]) - 1) < 1e-9 and abs(float(slower[-1]) - FACTOR) < 1e-9,
        "the published form, which leaves the fastest pair and divides the slowest by s",
    )
    pair = torch.arange(HEAD // 2, dtype=torch.float64)
    stated = theta / (BASE * FACTOR) ** (-2 * pair / HEAD)
    off = float((stated / slower - 1).abs().max())
    pi = theta / _rescaled("rope_pi")
    yarn = theta / _rescaled("rope_yarn", original_length=TRAINED)
    lines = tuple(
        Line(label, tuple(pair.tolist()), tuple(factors.tolist()))
        for label, factors in (
            ("interpolation", pi), ("NTK-aware, as published", slower), ("NTK-aware, as the section has "
            "it", stated),
            ("YaRN", yarn),
        )
    )  # fmt: skip
    presses_high = float(slower[0]) > float(slower[-1])
    return in_parts(
        Part(
            "The formula is (10000 s)^(−2k/d).",
            exactly(off < 1e-6),
            f"s = {FACTOR:.0f}, K = {HEAD}: as published, the slowest pair turns {float(slower[-1]):.2f} "
            f"times slower; the stated formula makes it {float(stated[-1]):.2f}",
        ),
        Part(
            "It presses the high frequencies down.",
            exactly(presses_high),
            f"the fastest pair turns {float(slower[0]):.2f} times slower",
        ),
        why="Neither part holds. The published base is 10000 · s^(K/(K−2)) (bloc97 2023; Peng et al. 2023, "
        f"arXiv 2309.00071), from which the stated one is off by up to {100 * off:.1f} %; and both press the "
        "low frequencies and leave the highest where it is.",
        figures=(Figure("rescaling_factors", f"How many times slower a pair turns, s = {FACTOR:.0f}",
                        "Pair (0 is the fastest)", "Times slower", lines),),
    )  # fmt: skip


def _yarn(studies: Studies) -> Judgement:
    rope = parts.rope(HEAD, BASE)
    yarn = parts.scheme("rope_yarn", HEAD, base=BASE, pairing="half", factor=FACTOR, original_length=TRAINED)
    slower = _theta() / parts.frequencies(yarn)
    control(
        abs(float(slower[0]) - 1) < 1e-9 and abs(float(slower[-1]) - FACTOR) < 1e-9,
        "a ramp from 1 to s over the pairs",
    )
    q, k = parts.normal(2, HEAD)

    def added(scale: float) -> float:
        return parts.score(yarn, scale * q, k, 100, 0) - parts.score(rope, scale * q, k, 100, 0)

    once, twice = added(1), added(2)
    no_bias = yarn.bias(torch.arange(8)) is None and abs(twice - 2 * once) < 1e-9 < abs(once)
    explicit = bool((slower[:-1] <= slower[1:] + 1e-12).all())
    return in_parts(
        Part(
            "It is an implicit form inside attention.",
            exactly(not explicit),
            f"pairs turn 1 to {float(slower.max()):.0f} times slower, along a ramp",
        ),
        Part(
            "It is a bias on the score.",
            exactly(not no_bias),
            f"what it changes of a score doubles with the query ({once:.2f}, then {twice:.2f})".replace(
                "-", "−"
            ),
        ),
        why="It is explicit and no bias: new frequencies, pair by pair, and queries and keys times 0.1 ln s "
        "+ 1. What it changes grows with the query, as nothing that is added to a score does.",
    )


CLAIMS = (
    Claim(
        15,
        "NTK-aware scaling is (10000 s)^(−2k/d) and presses the high frequencies down.",
        (BOOK,),
        "Its frequencies are those of base 10000 s, and the fastest pair is slowed most.",
        "The scaling that models train and are evaluated with, against the stated formula, K = 64, s = 8.",
        "Trained models under the stated formula, which is the arm rope_ntk_notes, beside rope_ntk.",
        _ntk,
        exact=True,
    ),
    Claim(
        16,
        "YaRN is an implicit form inside attention, a bias on the score.",
        (BOOK,),
        "The score under YaRN less that under RoPE is the same for every query and key.",
        "Scores under the scheme rope_yarn and under rope of one random query and key, and of twice the "
        "query.",
        "Nothing: it follows from the definition (Peng et al. 2023, YaRN, arXiv 2309.00071).",
        _yarn,
        exact=True,
    ),
)
