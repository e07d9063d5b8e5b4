"""RoPE at the square root or the logarithm of the position."""

from claims import parts
from claims.contract import (
    BOOK,
    Claim,
    Judgement,
    Part,
    Verdict,
    control,
    exactly,
    in_parts,
    untested,
)
from claims.formatting import small
from claims.studies import EXPLORATORY, WARPED, Studies, compared, setting

GAIN = 0.02  # nats: a smaller gain counts as none


def _equivariance(studies: Studies) -> Judgement:
    q, k = parts.normal(2, parts.WIDTH)
    plain = parts.rope()
    moved = {"plain": abs(parts.score(plain, q, k, 1037, 1000) - parts.score(plain, q, k, 37, 0))}
    for warp in ("sqrt", "log"):
        scheme = parts.scheme("rope_warped", base=10_000.0, pairing="half", warp=warp)
        moved[warp] = abs(parts.score(scheme, q, k, 1037, 1000) - parts.score(scheme, q, k, 37, 0))
    control(moved["plain"] < 1e-9, "scores of plain RoPE, which do not change")
    return in_parts(
        Part(
            "Square-root positions do.",
            exactly(moved["sqrt"] > 1e-3),
            f"with both tokens 1,000 places further on, the score changes by {moved['sqrt']:.1f}, and by "
            f"{small(moved['plain'])} under plain RoPE",
        ),
        Part("Logarithmic positions do.", exactly(moved["log"] > 1e-3), f"by {moved['log']:.1f}"),
        why="The same distance turns by less and less as positions grow."
        if min(moved["sqrt"], moved["log"]) > 1e-3
        else "A score at a warped position does not change when both tokens move.",
    )


WARPS = {"rope_sqrt": "Square-root positions bring no gain.", "rope_log": "Logarithmic positions bring none."}


def _no_gain(studies: Studies) -> Judgement:
    results = studies.results(WARPED.study)
    if results is None:
        return untested((WARPED,), "The schemes rope_sqrt and rope_log exist; the study was not run.")
    judged = []
    for label, statement in WARPS.items():
        found = compared(results, "sliding_1x", label, "rope", len(WARPS))
        if found is None or found.difference.half_width is None:
            return untested((WARPED,), "The study has too few finished runs.")
        verdict = Verdict.UNDECIDED
        if found.reading == "lower":
            verdict = Verdict.REFUTED_HERE
        elif (
            found.difference.n >= EXPLORATORY and found.difference.mean - found.difference.half_width > -GAIN
        ):
            verdict = Verdict.HOLDS_HERE
        judged.append(Part(statement, verdict, f"sliding loss at L, {label} less rope {found.text}"))
    return in_parts(
        *judged,
        why=f"A gain counts as none if the whole interval is below {GAIN} nats, at the training length. "
        "Lengths past it were not measured.",
        study=WARPED.study,
        setting=setting(results),
    )


CLAIMS = (
    Claim(
        17,
        "Square-root or logarithmic positions break shift equivariance.",
        (BOOK,),
        "A query and a key 37 tokens apart have a different score 1,000 tokens further on.",
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
        "Larger models, longer training and another text.",
        _no_gain,
    ),
)
