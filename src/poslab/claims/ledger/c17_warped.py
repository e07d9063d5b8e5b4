"""RoPE at the square root or the logarithm of the position."""

from poslab.claims import parts
from poslab.claims.contract import BOOK, Claim, Judgement, Verdict, control, exactly, small, undecided
from poslab.claims.studies import WARPED, Studies, compared, setting

GAIN = 0.02  # nats: less is called no gain


def _equivariance(studies: Studies) -> Judgement:
    q, k = parts.normal(2, parts.WIDTH)
    plain = parts.rope()
    moved = {"plain": abs(parts.score(plain, q, k, 1037, 1000) - parts.score(plain, q, k, 37, 0))}
    for warp in ("sqrt", "log"):
        scheme = parts.scheme("rope_warped", base=10_000.0, pairing="half", warp=warp)
        moved[warp] = abs(parts.score(scheme, q, k, 1037, 1000) - parts.score(scheme, q, k, 37, 0))
    control(moved["plain"] < 1e-9, "scores of plain RoPE, which do not move")
    return Judgement(
        exactly(min(moved["sqrt"], moved["log"]) > 1e-3),
        f"both tokens 1,000 places on, the score moves by {moved['sqrt']:.1f} (square root), "
        f"{moved['log']:.1f} (logarithm) and {small(moved['plain'])} (plain)",
        "Equal distances turn by less and less as positions grow."
        if min(moved["sqrt"], moved["log"]) > 1e-3
        else "A score at a warped position does not move when both tokens do.",
    )


def _no_gain(studies: Studies) -> Judgement:
    results = studies.results(WARPED.study)
    if results is None:
        return undecided((WARPED,), "The schemes rope_sqrt and rope_log are there; the study is not.")
    differences = {one: compared(results, "sliding_1x", one, "rope", 2) for one in ("rope_sqrt", "rope_log")}
    made = [
        each for each in differences.values() if each is not None and each.difference.half_width is not None
    ]
    if len(made) < 2:
        return undecided((WARPED,), "The study has too few finished runs.")
    lows = [each.difference.mean - (each.difference.half_width or 0) for each in made]
    gains = any(each.reading == "lower" for each in made)
    enough = all(each.difference.n >= 5 for each in made)
    verdict = (
        Verdict.REFUTED_HERE
        if gains
        else Verdict.HOLDS_HERE
        if enough and min(lows) > -GAIN
        else Verdict.UNDECIDED
    )
    shown = "; ".join(f"{one} less rope {each.text}" for one, each in differences.items() if each is not None)
    return Judgement(
        verdict,
        f"sliding loss at L: {shown}",
        f"No gain is said where the whole interval leaves less than {GAIN} nats of one.",
        study=WARPED.study,
        setting=setting(results),
    )


CLAIMS = (
    Claim(
        17,
        "Square-root or logarithmic positions break shift equivariance.",
        (BOOK,),
        "A query and a key 37 tokens apart have another score 1,000 tokens further on.",
        "Softmax attention's scores under the schemes rope_sqrt and rope_log, with plain RoPE as a control.",
        "Nothing: it follows from the definition.",
        _equivariance,
        exact=True,
    ),
    Claim(
        33,
        "Square-root and logarithmic positions bring no gain.",
        (BOOK,),
        f"At the training length their loss is not lower than RoPE's by {GAIN} nats or more.",
        "Sliding loss at L of rope_sqrt and rope_log less rope's, paired by seed.",
        "The study, and a second text.",
        _no_gain,
    ),
)
