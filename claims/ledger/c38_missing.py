"""What trained states hold of the position; mixers that carry it by themselves; tasks past their sizes."""

from collections.abc import Hashable, Mapping
from typing import Any

from scipy.stats import wilcoxon

from claims.contract import (
    BOOK,
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
    EXPLORATORY,
    FALSE_ALARMS,
    MIXERS,
    TASKS,
    VARIANTS,
    Results,
    Studies,
    compared,
    context_used,
    gain_reading,
    name,
    setting,
)
from poslab import Estimate, estimate, interval


def explained(results: Results, label: str) -> Estimate | None:
    """Over seeds, the share of the position's variance that a linear probe explains in the best layer."""
    best: dict[str, float] = {}
    for row in results.rows("position_probe", arm=label):
        best[row["run"]] = max(row["explained"], best.get(row["run"], row["explained"]))
    return estimate(list(best.values()))


def _absolute(studies: Studies) -> Judgement:
    results = studies.results(VARIANTS.study)
    rope = None if results is None else explained(results, "rope")
    if results is None or rope is None:
        return untested(
            (VARIANTS,),
            "Scores under RoPE know only distances (claim 6), but the causal mask makes places differ from "
            "two layers on (claim 25), so it is a question of what trained hidden states hold. Each run "
            "records what a linear probe reads of the position; a study with these records is missing.",
        )
    none = explained(results, "none")
    beside = "" if none is None else f"; without any scheme {interval(none.mean, none.half_width, 3)}"
    return Judgement(
        Verdict.UNDECIDED,
        "share of the position's variance that a linear probe explains, in the layer that has most of it: "
        f"{interval(rope.mean, rope.half_width, 3)}{beside}",
        "Scores under RoPE know only distances (claim 6); what a hidden state holds of the place comes from "
        "the causal mask (claim 25). The probe has a coefficient for each dimension of a state and is fitted "
        "on half of the validation windows, a dozen by default: so few that it may find nothing where "
        "something is. A share below 0 says that it fits its own windows instead.",
        study=VARIANTS.study,
        setting=setting(results),
    )


RECURRENT = {"gated_linear": "Mamba-2's form", "gated_delta": "the delta rule, which RWKV-7 generalises"}


def _arm(results: Results, scheme: str, mixer: str) -> str | None:
    """The arm with this scheme and mixer in all layers."""
    for label, config in results.configs.items():
        if (config["pos"]["scheme"], config["attention"]["kind"]) == (scheme, mixer):
            return str(label)
    return None


def _recurrent(studies: Studies) -> Judgement:
    results = studies.results(MIXERS.study)
    if results is None:
        return untested((MIXERS,), "The study is not there.")
    longest = max(results.multiples)
    rope, bare = (str(_arm(results, scheme, "flash")) for scheme in ("rope", "none"))
    parts: list[Part] = []
    for mixer, named in RECURRENT.items():
        own = str(_arm(results, "none", mixer))
        near, gain = (compared(results, "sliding_1x", own, other, 4) for other in (rope, bare))
        far = gain_reading(results, f"context_gain_{name(longest)}", own)
        if near is None or gain is None or far is None:
            return untested((MIXERS,), "The study lacks an arm, or losses that the claim is about.")
        parts += (
            Part(
                f"Without positions, {mixer} ({named}) is not worse than attention with RoPE.",
                no_clear_difference(near, 1),
                f"sliding loss at L less that of attention with rope {near.text}",
            ),
            Part(
                "It is better than attention without positions.",
                TRUE_IF_LOWER[gain.reading],
                f"sliding loss at L less that of attention without {gain.text}",
            ),
            Part(
                "Its loss does not rise past L.",
                no_clear_difference(far, -1),
                f"sliding loss at L less that at {longest:g} L {far.text}",
            ),
        )
    return in_parts(
        *parts,
        why="A state that decays and a convolution over four tokens bring order into the mixer itself. "
        + context_used(results, results.reference, "the reference's"),
        study=MIXERS.study,
        setting=setting(results),
    )


def _tasks(studies: Studies) -> Judgement:
    results = studies.results(TASKS.study)
    rows = [] if results is None else results.rows("task_arms")
    if results is None or not rows:
        return untested((TASKS,), "The study is not there.")
    parts = []
    for task in dict.fromkeys(str(row["task"]) for row in rows):
        of_task = {_scheme(results, row): row for row in rows if row["task"] == task}
        parts.append(_on_task(results, task, of_task))
    return in_parts(
        *parts,
        why="L50 is the largest size, over the longest of training, up to which half of the answers are "
        "exact. It counts seeds that learned the task, with 95 % exact answers at that longest size.",
        study=TASKS.study,
        setting=setting(results),
    )


def _scheme(results: Results, row: Mapping[Hashable, Any]) -> str:
    return str(results.configs[str(row["arm"])]["pos"]["scheme"])


def _on_task(results: Results, task: str, rows: Mapping[str, Mapping[Hashable, Any]]) -> Part:
    """Whether models without positions reach further than every scheme, by signed ranks over shared seeds."""
    reached = {scheme: results.by_seed(str(row["arm"]), "task_l50") for scheme, row in rows.items()}
    own, others = reached.pop("none", {}), {scheme: by_seed for scheme, by_seed in reached.items() if by_seed}
    said = [f"{scheme} {sum(of.values()) / len(of):.2f} ({len(of)} seeds)" for scheme, of in others.items()]
    numbers = (
        f"L50 of none {sum(own.values()) / len(own):.2f} ({len(own)} seeds)"
        if own
        else "no seed without positions learned it"
    )
    verdicts = []
    for of in others.values():
        gaps = [own[seed] - of[seed] for seed in own.keys() & of.keys()]
        clear = (
            len(gaps) >= EXPLORATORY
            and any(gaps)
            and wilcoxon(gaps, zero_method="zsplit").pvalue * len(others) < FALSE_ALARMS
        )
        verdicts.append((sum(gaps) > 0) - (sum(gaps) < 0) if clear else 0)
    verdict = Verdict.UNDECIDED
    if verdicts and all(sign > 0 for sign in verdicts):
        verdict = Verdict.HOLDS_HERE
    elif any(sign < 0 for sign in verdicts):
        verdict = Verdict.REFUTED_HERE
    return Part(f"On {task}.", verdict, "; ".join([numbers, *said]))


CLAIMS = (
    Claim(
        38,
        "RoPE loses the absolute position.",
        (BOOK,),
        "A linear probe reads the position from hidden states no better than chance.",
        "Least squares of the position in the window on the hidden states after each layer, fitted on half "
        "of the validation windows and read on the others, in the study variants.",
        "A probe fitted on a thousand windows with a ridge penalty, beside one of shuffled positions; larger "
        "models and longer windows.",
        _absolute,
    ),
    Claim(
        39,
        "Recurrent models (RWKV, Mamba) carry positions implicitly.",
        (BOOK,),
        "Without a positional scheme their loss at the training length is not higher than that of attention "
        f"with RoPE by {CLEAR} nats or more, is lower than that of attention without, and does not rise "
        "by as much past it.",
        "Sliding losses at L of gated_linear (Mamba-2's form) and gated_delta under none, less those of "
        "attention under rope and none, and less their own at the longest length, in the study mixers.",
        "Models of the authors' sizes, with states as large as theirs, and the time mixing of RWKV itself.",
        _recurrent,
    ),
    Claim(
        46,
        "Models without positions generalise best to longer tasks.",
        ("Kazemnejad et al. 2023 (arXiv 2305.19466)",),
        "On tasks longer than those of training, pos=none answers more than any other scheme.",
        "L50 of none less that of each other scheme over the seeds that learned a task, in the study tasks, "
        "by signed ranks with a correction for the schemes.",
        "Larger models and more tasks.",
        _tasks,
    ),
)
