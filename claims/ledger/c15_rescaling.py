"""The definitions of NTK-aware scaling and YaRN."""

import torch

from claims import parts
from claims.contract import BOOK, Claim, Figure, Judgement, Line, Part, control, exactly, in_parts
from claims.studies import Studies

HEAD, BASE, FACTOR, TRAINED = 64, 10_000.0, 8.0, 2048


def _theta() -> torch.Tensor:
    return parts.frequencies(parts.rope(HEAD, BASE))


def _rescaled(scheme: str, **options: object) -> torch.Tensor:
    """Return RoPE's frequencies, rescaled by FACTOR with `scheme`."""
    options |= {"base": BASE, "pairing": "half", "factor": FACTOR}
    return parts.frequencies(parts.scheme(scheme, HEAD, 1, 128, **options))


def _ntk(studies: Studies) -> Judgement:
    theta = _theta()
    slower = theta / _rescaled("rope_ntk")  # how many times slower each pair turns
    control(
        abs(float(slower[0]) - 1) < 1e-9 and abs(float(slower[-1]) - FACTOR) < 1e-9,
        "the published form, which leaves the fastest pair unchanged and divides the slowest by s",
    )
    pair = torch.arange(HEAD // 2, dtype=torch.float64)
    stated = theta / (BASE * FACTOR) ** (-2 * pair / HEAD)
    off = float((stated / slower - 1).abs().max())
    pi = theta / _rescaled("rope_pi")
    yarn = theta / _rescaled("rope_yarn", original_length=TRAINED)
    lines = tuple(
        Line(label, tuple(pair.tolist()), tuple(factors.tolist()))
        for label, factors in (
            ("interpolation", pi), ("NTK-aware, as published", slower), ("NTK-aware, as the notes have "
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
        f"arXiv 2309.00071); with the stated one, frequencies are off by up to {100 * off:.1f} %. Both lower "
        "the low frequencies and leave the highest unchanged.",
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
            f"its change of a score doubles with the query ({once:.2f}, then {twice:.2f})".replace("-", "−"),
        ),
        why="It is explicit and not a bias: it gives each pair a new frequency, and multiplies queries and "
        "keys by 0.1 ln s + 1. Its change of a score grows with the query, which no term added to a score "
        "does.",
    )


CLAIMS = (
    Claim(
        15,
        "NTK-aware scaling is (10000 s)^(−2k/d) and presses the high frequencies down.",
        (BOOK,),
        "Its frequencies are those of base 10000 s, and the fastest pair is slowed most.",
        "The scaling used in training and evaluation, compared with the stated formula, K = 64, s = 8.",
        "Models trained with the stated formula (the arm rope_ntk_notes), compared with rope_ntk.",
        _ntk,
        exact=True,
    ),
    Claim(
        16,
        "YaRN is an implicit form inside attention, a bias on the score.",
        (BOOK,),
        "The score under YaRN less that under RoPE is the same for every query and key.",
        "Scores of one random query and key, and of twice that query, under the schemes rope_yarn and rope.",
        "Nothing: it follows from the definition (Peng et al. 2023, YaRN, arXiv 2309.00071).",
        _yarn,
        exact=True,
    ),
)
