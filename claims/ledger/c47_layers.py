"""Claims of 2025 and 2026 about layers of language models, tested in small trained models."""

from collections.abc import Callable

from claims.contract import (
    CLEAR,
    TRUE_IF_LOWER,
    Claim,
    Judgement,
    Part,
    Verdict,
    in_parts,
    no_clear_difference,
    untested,
)
from claims.studies import (
    CANON,
    PARTS,
    Compared,
    Results,
    Studies,
    StudyCommand,
    compared,
    context_used,
    multiple,
    of_canon,
    ratio_text,
    setting,
    time_ratio,
)

Parts = tuple[Part, ...] | None


def _read(
    command: StudyCommand, why: str, parts: Callable[[Results], Parts], past: bool = False
) -> Callable[[Studies], Judgement]:
    """Return a function that judges by the `parts` of a study; `past`: they are about lengths past L."""

    def judge(studies: Studies) -> Judgement:
        results = studies.results(command.study)
        found = None if results is None else parts(results)
        if results is None or found is None:
            return untested((command,), "The study was not run, or lacks an arm.")
        context = f" {context_used(results, results.reference, 'its')}" if past else ""
        return in_parts(*found, why=why + context, study=command.study, setting=setting(results))

    return judge


def _is_lower(statement: str, found: Compared, measured: str) -> Part:
    return Part(statement, TRUE_IF_LOWER[found.reading], f"{measured} {found.text}")


def _no_clear_difference(statement: str, found: Compared, measured: str, sign: int) -> Part:
    return Part(statement, no_clear_difference(found, sign), f"{measured} {found.text}")


def _content_bias(results: Results) -> Parts:
    figure = results.primary
    if figure is None:
        return None
    rope, t5 = (compared(results, figure, "inkling", rival) for rival in ("rope", "t5"))
    if rope is None or t5 is None:
        return None
    where = f"sliding loss at {multiple(figure):g} L, inkling less"
    return (
        _is_lower("It extrapolates better than RoPE.", rope, f"{where} rope"),
        _is_lower("It extrapolates better than a bias by distance alone (T5's).", t5, f"{where} t5"),
    )


def _canon(results: Results) -> Parts:
    bare, canon = of_canon(results, "none", False), of_canon(results, "none", True)
    rope, rope_canon = of_canon(results, "rope", False), of_canon(results, "rope", True)
    if None in (bare, canon, rope, rope_canon):
        return None
    gain, to_rope, to_rope_canon = (
        compared(results, "sliding_1x", str(canon), str(rival), 3) for rival in (bare, rope, rope_canon)
    )
    if gain is None or to_rope is None or to_rope_canon is None:
        return None
    where = "sliding loss at L, none with Canon layers less"
    return (
        _is_lower("They lower the loss of a model without positions.", gain, f"{where} none"),
        _no_clear_difference("They bring it to RoPE without them.", to_rope, f"{where} rope", 1),
        _no_clear_difference("They bring it to RoPE with them.", to_rope_canon, f"{where} rope with them", 1),
    )


def _log_scale(results: Results) -> Parts:
    figure = results.primary
    past = None if figure is None else compared(results, figure, "ssmax", "rope")
    near = compared(results, "sliding_1x", "ssmax", "rope")
    faster = time_ratio(results, "ssmax", "rope", 1.0, 1)
    if figure is None or past is None or near is None:
        return None
    speed = Part("It learns faster.", Verdict.UNDECIDED, "no target was reached by both")
    if faster is not None:
        ratio, side = faster
        speed = Part(
            "It learns faster.", TRUE_IF_LOWER[side], f"tokens to the target over rope's {ratio_text(ratio)}"
        )
    where = f"sliding loss at {multiple(figure):g} L, ssmax less rope"
    return (
        speed,
        _is_lower("It has a lower loss at the training length.", near, "at L"),
        _is_lower("It reaches further.", past, where),
    )


def _part_of_the_width(results: Results) -> Parts:
    found = compared(results, "sliding_1x", "rope_partial", "rope")
    if found is None:
        return None
    measured = "sliding loss at L, rope_partial (a quarter) less rope"
    worse = {"higher": Verdict.HOLDS_HERE, "lower": Verdict.REFUTED_HERE, "open": Verdict.UNDECIDED}
    return (
        _no_clear_difference("It brings no improvement.", found, measured, -1),
        Part("It is worse.", worse[found.reading], f"{measured} {found.text}"),
    )


def _open(number: int, statement: str, source: str, prediction: str, needed: str) -> Claim:
    """Return a claim that no study here tests, with what a test would need."""
    return Claim(
        number,
        statement,
        (source,),
        prediction,
        "Not judged: no study here tests it.",
        needed,
        lambda studies: untested((), f"No study here tests it. A test needs {needed[0].lower()}{needed[1:]}"),
    )


CLAIMS = (
    _open(
        48,
        "As the context grows RoPE prefers near tokens no more than far ones.",
        "arXiv 2605.15514",
        "The share of pairs of keys in which the nearer one has the higher logit falls to a half.",
        "The queries and keys of trained models at several lengths.",
    ),
    _open(
        50,
        "RoPE in windows with no positions in the global layers reaches further than RoPE everywhere.",
        "Puvvada et al. 2025, SWAN-GPT (arXiv 2504.08719); Yang et al. 2025 (arXiv 2501.18795)",
        "At 8 L its sliding loss is lower.",
        "Both in the same block over five seeds; the study recipes has them in two blocks, over three seeds.",
    ),
    _open(
        52,
        "Gates by channel (Wall) beat FoX and RoPE past the training length without any rotation.",
        "Tilde Research, 2026",
        "At 8 L the sliding loss of wall is lower than those of fox and rope.",
        "The schemes wall, fox and rope over five seeds, with the rate of wall tuned.",
    ),
    _open(
        54,
        "Keeping documents apart in training brings nothing.",
        "nanochat's log, 2026, against Megatron-LM",
        "The loss at L under data.windows=packed is not lower than under joined.",
        "A text with documents shorter than the windows; those of the standard library are far longer.",
    ),
    _open(
        55,
        "What lets PaTH reach far is the accumulation over tokens, not the reflections.",
        "arXiv 2606.24975",
        "Past L an accumulation without reflections has a loss as low as PaTH's.",
        "That second scheme, which poslab does not have.",
    ),
    _open(
        56,
        "Layers without positions converge better where the window grows in training.",
        "DragonLLM, 2026",
        "With growing windows they need fewer tokens to the same loss.",
        "Windows that grow in training, which poslab does not have.",
    ),
    Claim(
        47,
        "A relative bias by content extrapolates better than RoPE.",
        ("the makers of Inkling, 2026",),
        "At 8 L its sliding loss is lower than RoPE's.",
        "Sliding loss at 8 L of inkling less those of rope and t5, in the study parts.",
        "Models of billions of parameters in which most layers have windows, as Inkling's do.",
        _read(
            PARTS,
            "The bias reaches back to L / 2 and is 0 beyond, in every layer; in Inkling most layers have "
            "windows.",
            _content_bias,
            past=True,
        ),
    ),
    Claim(
        49,
        "Canon layers lift a model without positions to RoPE.",
        ("Allen-Zhu 2025, Physics of Language Models 4.1 (arXiv 2512.17351)",),
        f"At the training length its loss with them is not higher than RoPE's by {CLEAR} nats or more.",
        "Sliding loss at L of none with Canon layers in all four places less those of none, of rope and of "
        "rope with them, in the study canon.",
        "The paper's synthetic tasks, and models of its sizes.",
        _read(
            CANON,
            "The paper is about reasoning in synthetic tasks; here the loss on one text is tested.",
            _canon,
        ),
    ),
    Claim(
        51,
        "A softmax whose logits grow with the logarithm of the length learns faster and reaches further.",
        ("Nakanishi 2025, Scalable-Softmax (arXiv 2501.19399)",),
        "RoPE with it needs fewer tokens to the target, and has a lower sliding loss at 8 L.",
        "Tokens to the target and sliding losses of ssmax and rope, in the study parts.",
        "The paper's lengths of 1,024 tokens and more, at its sizes.",
        _read(PARTS, "The scale is learned by head and layer, around plain RoPE.", _log_scale, past=True),
    ),
    Claim(
        53,
        "Turning a part of the width alone is slightly worse than turning all, and no improvement.",
        ("nanochat's log, 2026",),
        f"At the training length the loss of rope_partial is not lower than RoPE's by {CLEAR} nats.",
        "Sliding loss at L of rope_partial, which turns a quarter of the width, less rope's, in the study "
        "parts.",
        "Half of the width too, as in the log, at its sizes.",
        _read(
            PARTS,
            "A quarter of the width was turned, one of the two shares in the log. How small a difference is "
            "“slightly” worse is not judged.",
            _part_of_the_width,
        ),
    ),
)
