"""The position by which a key is rotated."""

from claims import parts
from claims.contract import TIPS, Claim, Judgement, Kind, control, exactly
from claims.studies import Studies


def _key(studies: Studies) -> Judgement:
    scheme = parts.rope()
    q, k = parts.normal(2, parts.WIDTH)
    query_at = 100
    scores = [parts.score(scheme, q, k, query_at, at) for at in (100, 63, 0)]
    moves = max(scores) - min(scores)
    control(abs(scores[0] - float(q @ k)) < 1e-9, "the plain product at distance 0")
    return Judgement(
        exactly(moves < 1e-9),
        f"with the query at {query_at}, the score is {scores[0]:.2f}, {scores[1]:.2f} and {scores[2]:.2f} "
        f"for a key at 100, 63 and 0".replace("-", "−"),
        "An index is wrong: a key at n is rotated by n. Rotated by the query's position m, as written, all "
        "keys of a query would turn alike, and the score would not depend on the distance."
        if moves >= 1e-9
        else "The score does not depend on the position of the key.",
    )


CLAIMS = (
    Claim(
        27,
        "The key at position n is f_k(x_n, n) = (W_k x_n) e^(i m θ).",
        (TIPS,),
        "With the query at m, a key has the same score at every position.",
        "Softmax attention's scores of one query and one key at three positions, K = 64.",
        "Nothing: it follows from the definition (Su et al. 2021, equation 12).",
        _key,
        exact=True,
        kind=Kind.CHECK,
    ),
)
