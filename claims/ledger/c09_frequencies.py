"""Which pairs turn fast, and the range of the frequencies."""

from claims import parts
from claims.contract import BOOK, Claim, Figure, Judgement, Kind, Line, control, exactly
from claims.studies import Studies

HEAD = 128  # as in large models
TURN = 6.283185307179586


def _order(studies: Studies) -> Judgement:
    theta = parts.frequencies(parts.rope(HEAD)).tolist()
    first, last = TURN / theta[0], TURN / theta[-1]
    lines = tuple(
        Line(f"base {base:,.0f}", tuple(range(HEAD // 2)),
             tuple((TURN / parts.frequencies(parts.rope(HEAD, base))).tolist()))
        for base in (500.0, 10_000.0, 500_000.0)
    )  # fmt: skip
    backwards = theta == sorted(theta, reverse=True)
    return Judgement(
        exactly(theta == sorted(theta)),
        f"pair 0 turns once in {first:.2f} tokens, the last of {HEAD // 2} pairs once in {last:,.0f}",
        "It is the other way round: the first pairs turn fastest and distinguish neighbours, the last ones "
        "turn slowest and distinguish long distances."
        if backwards
        else "The first pair is the slowest.",
        (Figure("wavelengths", f"Tokens in which a pair turns once, K = {HEAD}", "Pair",
                "Wavelength, tokens", lines, log_y=True),),
    )  # fmt: skip


def _range(studies: Studies) -> Judgement:
    theta = parts.frequencies(parts.rope(HEAD)).tolist()
    control(
        all(abs(frequency * 10_000 ** (2 * c / HEAD) - 1) < 1e-9 for c, frequency in enumerate(theta)),
        "theta_c = 10000^(−2c/K)",
    )
    lowest_first = theta[0] == min(theta)
    return Judgement(
        exactly(lowest_first and abs(theta[-1] - 0.01) < 0.005),
        f"theta runs from {theta[0]:.0f}, the highest, to {theta[-1]:.6f}, the lowest",
        "It begins at 1 and ends near 10000^−1, as stated, but 1 is the highest frequency, and 10000^−1 is "
        "0.0001 and not 0.01.",
    )


CLAIMS = (
    Claim(
        9,
        "A low index is a low frequency, for long range.",
        (BOOK,),
        "The wavelength of pair 0 is the longest.",
        f"RoPE's frequencies for K = {HEAD} and base 10,000.",
        "Nothing: it follows from the definition.",
        _order,
        exact=True,
    ),
    Claim(
        10,
        "theta runs from near 1, the lowest, to 10000^−1, about 0.01.",
        (BOOK,),
        "The first frequency is the lowest, and the last is about 0.01.",
        f"RoPE's frequencies for K = {HEAD} and base 10,000.",
        "Nothing: it follows from the definition.",
        _range,
        exact=True,
        kind=Kind.CHECK,
    ),
)
