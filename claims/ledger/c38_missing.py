"""Positions in trained hidden states, recurrent mixers without a scheme, and tasks past their sizes."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas
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
    CANON,
    EXPLORATORY,
    FALSE_ALARMS,
    MIXERS,
    TASKS,
    Results,
    Studies,
    compared,
    context_used,
    gain_reading,
    name,
    of_canon,
    read_difference,
    setting,
)
from poslab import estimate, interval, paired


def explained(results: Results, scheme: str, column: str = "explained") -> dict[int, float]:
    """Return by seed the share of the position's variance that a linear probe explains in the best layer.

    Probes without a control are left out. With `column` "shuffled", the share is that of shuffled positions.
    """
    best: dict[int, float] = {}
    for row in results.rows("position_probe", arm=of_canon(results, scheme, False)):
        if not pandas.isna(row["shuffled"]):
            best[row["seed"]] = max(row[column], best.get(row["seed"], row[column]))
    return best


def _absolute(studies: Studies) -> Judgement:
    results = studies.results(CANON.study)
    rope, shuffled, none = (
        {} if results is None else explained(results, *probe)
        for probe in (("rope",), ("rope", "shuffled"), ("none",))
    )
    above = paired(rope, shuffled)
    if results is None or above is None:
        return untested(
            (CANON,),
            "Scores under RoPE depend only on distances (claim 6), but with two layers or more the causal "
            "mask makes positions differ (claim 25), so it depends on the trained hidden states. Each run "
            "records how well a linear probe reads the position; a study with these records is missing.",
        )
    reading = read_difference(above, above.p)
    listed = (("", rope), ("of shuffled positions ", shuffled), ("without any scheme ", none))
    shares = [
        f"{prefix}{interval(found.mean, found.half_width, 3)}"
        for prefix, values in listed
        if (found := estimate(list(values.values()))) is not None
    ]
    return Judgement(
        Verdict.REFUTED_HERE if reading == "higher" else Verdict.UNDECIDED,
        "share of the position's variance that a linear probe explains, in the layer with the largest share: "
        + "; ".join(shares),
        "Scores under RoPE depend only on distances (claim 6); position in a hidden state comes from the "
        "causal mask (claim 25). "
        + (
            f"Beyond its share for shuffled positions, which cannot be read, the probe explains "
            f"{100 * above.mean:.0f} % of the variance."
            if reading == "higher"
            else "That the probe is not shown to read the position does not show that it is absent."
        ),
        study=CANON.study,
        setting=setting(results),
    )


RECURRENT = {"gated_linear": "Mamba-2's form", "gated_delta": "the delta rule, which RWKV-7 generalises"}


def _arm(results: Results, scheme: str, mixer: str) -> str | None:
    """Return the arm with this scheme and this mixer in all layers; None if there is none."""
    for label, config in results.configs.items():
        if (config["pos"]["scheme"], config["attention"]["kind"]) == (scheme, mixer):
            return str(label)
    return None


def _recurrent(studies: Studies) -> Judgement:
    results = studies.results(MIXERS.study)
    if results is None:
        return untested((MIXERS,), "The study was not run.")
    longest = max(results.multiples)
    rope, bare = (str(_arm(results, scheme, "flash")) for scheme in ("rope", "none"))
    parts: list[Part] = []
    for mixer, named in RECURRENT.items():
        label = str(_arm(results, "none", mixer))
        near, gain = (compared(results, "sliding_1x", label, rival, 4) for rival in (rope, bare))
        far = gain_reading(results, f"context_gain_{name(longest)}", label)
        if near is None or gain is None or far is None:
            return untested((MIXERS,), "The study lacks an arm or a loss that the claim is about.")
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
        why="A decaying state and a convolution over four tokens make the mixer itself depend on the order. "
        + context_used(results, results.reference, "the reference's"),
        study=MIXERS.study,
        setting=setting(results),
    )


def _tasks(studies: Studies) -> Judgement:
    results = studies.results(TASKS.study)
    rows = [] if results is None else results.rows("task_arms")
    if results is None or not rows:
        return untested((TASKS,), "The study was not run.")
    parts = []
    for task in dict.fromkeys(str(row["task"]) for row in rows):
        of_task = {_scheme(results, row): row for row in rows if row["task"] == task}
        parts.append(_on_task(results, task, of_task))
    return in_parts(
        *parts,
        why="L50 is the largest size, over the longest in training, up to which half of the answers are "
        "exact. Only seeds that learned the task count, with 95 % exact answers at the longest size in "
        "training, and only schemes that are defined past it.",
        study=TASKS.study,
        setting=setting(results),
    )


def _scheme(results: Results, row: Mapping[Hashable, Any]) -> str:
    return str(results.configs[str(row["arm"])]["pos"]["scheme"])


def _on_task(results: Results, task: str, rows: Mapping[str, Mapping[Hashable, Any]]) -> Part:
    """Judge whether models without positions reach further than all schemes, by signed ranks over seeds."""
    reached = {
        scheme: {} if pandas.isna(row["task_l50_mean"]) else results.by_seed(str(row["arm"]), "task_l50")
        for scheme, row in rows.items()
    }
    none = reached.pop("none", {})
    rivals = {scheme: by_seed for scheme, by_seed in reached.items() if by_seed}
    listed = [f"{scheme} {sum(of.values()) / len(of):.2f} ({len(of)} seeds)" for scheme, of in rivals.items()]
    numbers = (
        f"L50 of none {sum(none.values()) / len(none):.2f} ({len(none)} seeds)"
        if none
        else "no seed without positions learned it"
    )
    verdicts = []
    for of in rivals.values():
        gaps = [none[seed] - of[seed] for seed in none.keys() & of.keys()]
        clear = (
            len(gaps) >= EXPLORATORY
            and any(gaps)
            and wilcoxon(gaps, zero_method="zsplit").pvalue * len(rivals) < FALSE_ALARMS
        )
        verdicts.append((sum(gaps) > 0) - (sum(gaps) < 0) if clear else 0)
    verdict = Verdict.UNDECIDED
    if verdicts and all(sign > 0 for sign in verdicts):
        verdict = Verdict.HOLDS_HERE
    elif any(sign < 0 for sign in verdicts):
        verdict = Verdict.REFUTED_HERE
    return Part(f"On {task}.", verdict, "; ".join([numbers, *listed]))


CLAIMS = (
    Claim(
        38,
        "RoPE loses the absolute position.",
        (BOOK,),
        "A linear probe reads the position from hidden states no better than chance.",
        "Ridge regression of the position in the window on the hidden states after each layer, fitted on a "
        "thousand windows and evaluated on others, less the same for shuffled positions, in the study canon.",
        "Larger models and longer windows; a non-linear probe.",
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
        "Models with the sizes and states of the authors', and RWKV's own time mixing.",
        _recurrent,
    ),
    Claim(
        46,
        "Models without positions generalise best to longer tasks.",
        ("Kazemnejad et al. 2023 (arXiv 2305.19466)",),
        "On tasks longer than those in training, pos=none answers more than any other scheme.",
        "L50 of none less that of each other scheme over the seeds that learned a task, in the study tasks, "
        "by signed-rank tests corrected for the number of schemes.",
        "Larger models and more tasks.",
        _tasks,
    ),
)
