"""Variants of RoPE in trained models: learned positions, other bases, rescaling, unturned pairs."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import torch

import poslab
from claims import parts
from claims.contract import (
    BLOG,
    BOOK,
    CLEAR,
    TRUE_IF_LOWER,
    Claim,
    Judgement,
    Part,
    Verdict,
    exactly,
    in_parts,
    no_clear_difference,
    untested,
)
from claims.studies import (
    BASES,
    CATALOGUE,
    CONTEXT,
    EXPLORATORY,
    RESCALING,
    VARIANTS,
    Compared,
    Results,
    Studies,
    compared,
    context_used,
    multiple,
    name,
    read_difference,
    setting,
)
from poslab import number

TURNED = 1.0  # radians within L: a pair that turns by less counts as unturned


def first_negative(base: float, farthest: int = 16_384) -> int:
    """Return the first distance at which equal queries and keys score below 0 (Xu et al. 2024), K = 32."""
    scores = parts.rotations(parts.rope(32, base), torch.arange(farthest)).real.sum(dim=0)
    return int((scores < 0).int().argmax())


def _variant(studies: Studies, label: str) -> tuple[str, Results, Compared] | None:
    """Return a variant less rope at L, in the study variants or, if that was not run, in catalogue."""
    for study in (VARIANTS.study, CATALOGUE.study):
        results = studies.results(study)
        found = None if results is None else compared(results, "sliding_1x", label, "rope")
        if results is not None and found is not None:
            return study, results, found
    return None


def _with_learned(studies: Studies) -> Judgement:
    variant = _variant(studies, "rope_learned")
    if variant is None:
        return untested((VARIANTS,), "The scheme rope_learned exists; the study was not run.")
    study, results, found = variant
    return Judgement(
        no_clear_difference(found, -1),
        f"sliding loss at L, rope_learned less rope {found.text}",
        f"A gain does not count as clear if the whole interval is below {CLEAR} nats.",
        study=study,
        setting=setting(results),
    )


def slowest_angle(results: Results, label: str) -> float:
    """Return the largest angle within L, under plain RoPE, of the pairs that `label` leaves unturned."""
    config, length = results.configs[label], int(results.arms[label]["context_length"])
    width = config["model"]["width"] // config["model"]["heads"]
    options = {key: value for key, value in config["pos"].items() if key != "scheme"}
    turned = parts.frequencies(parts.scheme(str(config["pos"]["scheme"]), width, length=length, **options))
    plain = parts.frequencies(parts.rope(width, base=options["base"]))
    return float(plain[turned == 0].max()) * (length - 1)


def _still_pairs(studies: Studies) -> Judgement:
    variant = _variant(studies, "rope_p")
    if variant is None:
        return untested((VARIANTS,), "The scheme rope_p exists; the study was not run.")
    study, results, found = variant
    angle = slowest_angle(results, "rope_p")
    return Judgement(
        no_clear_difference(found, 1) if angle >= TURNED else Verdict.UNDECIDED,
        f"within L = {results.context_length} the pairs left unturned turn by at most {angle:.2f} rad under "
        f"RoPE; sliding loss at L, rope_p less rope {found.text}",
        f"A loss counts as none if the whole interval is below {CLEAR} nats."
        if angle >= TURNED
        else "These pairs hardly turn within this length, so leaving them unturned changes hardly anything: "
        "the study could not have found a loss. It takes a length or a base at which they turn by at least "
        f"{TURNED:g} rad.",
        study=study,
        setting=setting(results),
    )


def _first(studies: Studies, *names: str) -> Results | None:
    """Return the first of these studies that is available, or None."""
    return next((results for name in names if (results := studies.results(name)) is not None), None)


def _rescaled(studies: Studies) -> tuple[Results, str, Compared, str] | None:
    """Return a trained RoPE under NTK-aware scaling less the same unscaled, as far past L as it is scaled.

    The study comes first, then the length, the difference, and a sentence on its loss there and at L.
    """
    results = _first(studies, CONTEXT.study, RESCALING.study)
    if results is None or results.primary is None:
        return None
    evaluation = results.configs[results.reference].get("evaluate", {})
    factor = evaluation.get("rescale_factor") if isinstance(evaluation, dict) else None
    figure = f"sliding_{name(factor)}" if isinstance(factor, float) else results.primary
    losses = {
        rescale: {row["seed"]: row[figure] for row in results.rows("rescaled", arm="rope", rescale=rescale)}
        for rescale in ("ntk", "none")
    }
    difference = poslab.paired(losses["ntk"], losses["none"])
    if difference is None:
        return None
    found = Compared(difference, difference.p, read_difference(difference, difference.p))
    scaled, at_length = fmean(losses["ntk"].values()), results.estimate("rope", f"sliding_{name(1)}")
    beside = (
        ""
        if at_length is None
        else f" The scaled loss is {scaled:.3f} there; the unscaled one is {at_length.mean:.3f} at L."
    )
    return results, f"{multiple(figure):g} L", found, beside


def _other_bases(studies: Studies) -> list[tuple[Results, str, Compared]]:
    """Return the larger bases less 10,000, at each length past L."""
    results = _first(studies, CONTEXT.study, BASES.study)
    if results is None:
        return []
    larger = [label for label in ("rope_50k", "rope_500k", "rope_1m") if label in results.arms]
    cases = [(k, base) for base in larger for k in results.multiples if k > 1]
    found = [
        (case, compared(results, f"sliding_{name(case[0])}", case[1], "rope", len(cases))) for case in cases
    ]
    return [(results, f"{base} at {k:g} L", loss) for (k, base), loss in found if loss is not None]


def _extends(studies: Studies) -> Judgement:
    ntk, bases = _rescaled(studies), _other_bases(studies)
    missing = () if studies.results(CONTEXT.study) else (CONTEXT,)
    scaled = Part(
        "NTK-aware scaling of a trained RoPE extends its context.", Verdict.NOT_TESTED, "not measured"
    )
    sentence = "NTK-aware scaling was not measured."
    if ntk is not None:
        results, where, found, beside = ntk
        scaled = replace(
            scaled,
            verdict=TRUE_IF_LOWER[found.reading],
            numbers=f"sliding loss at {where}, less the unscaled one's {found.text}",
        )
        sentence = _in_words(f"NTK-aware scaling of a trained RoPE: at {where}", found) + beside
        sentence += f" {context_used(results, 'rope', 'its unscaled')}"
    listed = "; ".join(f"{where} {found.text}" for _, where, found in bases)
    read = [results for results, *_ in ((ntk,) if ntk else ())] + [results for results, *_ in bases]
    return in_parts(
        scaled,
        Part(
            "A larger base does, with further training at the longer length.",
            Verdict.NOT_TESTED,
            f"trained only at L, sliding loss less base 10,000's: {listed}" if listed else "not measured",
        ),
        Part(
            "A smaller base does (Liu et al. 2023, arXiv 2310.05209).",
            Verdict.NOT_TESTED,
            "not measured",
        ),
        why=f"{sentence} A larger base is meant with further training at the longer length, not done here"
        + (
            ": models with one were trained at L from the start; their losses past L say nothing about it."
            if listed
            else "."
        )
        + " Smaller bases were not trained.",
        missing=missing,
        study=read[0].study.name if read else None,
        setting="; ".join(dict.fromkeys(setting(results) for results in read)) or None,
    )


def _in_words(where: str, found: Compared) -> str:
    """Return a sentence on a difference and whether it counts."""
    mean, half, n = found.difference.mean, found.difference.half_width, found.difference.n
    change = f"{where}, the loss is {number(abs(mean), 3)} nats {'lower' if mean < 0 else 'higher'}"
    if found.reading != "open":
        return f"{change}."
    if half is None or n < EXPLORATORY:
        return f"{change} in {n} seed{'s' * (n != 1)}, too few to count."
    return f"{change}, {'within noise' if abs(mean) <= half else f'not separated ({n} seeds)'}."


def _larger_base(studies: Studies) -> Judgement:
    bases = (500.0, 10_000.0, 500_000.0)
    places = [first_negative(base) for base in bases]
    value = "in heads of width 32, first below 0 at " + ", ".join(
        f"{place:,} tokens (base {base:,.0f})" for base, place in zip(bases, places, strict=True)
    )
    return in_parts(
        Part(
            "The distance up to which equal queries and keys score above 0 grows with the base.",
            exactly(all(near < far for near, far in pairwise(places))),
            value,
        ),
        Part("So does the usable length of trained models.", Verdict.NOT_TESTED, "not measured"),
        why="The paper's own measure grows with the base, as stated. Whether the usable length of trained "
        "models does, too, takes several bases over several seeds, at lengths that the models use.",
        missing=() if studies.results(BASES.study) else (BASES,),
    )


CLAIMS = (
    Claim(
        34,
        "RoPE and learned positions together bring no clear gain.",
        (BOOK,),
        f"At the training length their loss is not lower than RoPE's by {CLEAR} nats or more.",
        "Sliding loss at L of rope_learned less rope's, in the study variants or, if that was not run, in "
        "catalogue.",
        "Larger models and another text.",
        _with_learned,
    ),
    Claim(
        35,
        "NTK-aware scaling and other bases extend the context.",
        (BOOK, BLOG),
        "Past L the loss with them is lower than plain RoPE's: with NTK-aware scaling after training, with a "
        "larger base after further training at the longer length.",
        "Sliding loss of a trained RoPE under NTK-aware scaling, as far past L as it is scaled, less the "
        "unscaled one's, in the study context or, if that was not run, in rescaling.",
        "Further training at the longer length with larger and smaller bases, of models that use their "
        "context.",
        _extends,
        question="Do NTK-aware scaling and larger bases both extend the context?",
    ),
    Claim(
        44,
        "A larger base bounds a longer usable length.",
        ("Xu, Men et al. 2024, Base of RoPE Bounds Context Length (arXiv 2405.14591)",),
        "The usable length of trained models grows with the base.",
        "The distance up to which equal queries and keys score above 0 (computed), and the study bases.",
        "The study bases over five seeds, with models that use their context.",
        _larger_base,
        exact=True,
    ),
    Claim(
        45,
        "The slowest pairs can be left unturned without loss.",
        ("Barbero et al. 2024, Round and Round We Go! (arXiv 2410.06205)",),
        f"At the training length the loss of rope_p is not higher than RoPE's by {CLEAR} nats or more.",
        "The angle by which these pairs turn within L, and the sliding loss at L of rope_p less rope's, in "
        "the study variants or, if that was not run, in catalogue.",
        "The study at L = 1,024 or more, or with base 100, so that these pairs turn; another text.",
        _still_pairs,
    ),
)
