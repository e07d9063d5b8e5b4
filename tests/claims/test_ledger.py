"""Every claim has a verdict or names the missing study; a study decides no more than its intervals do."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from claims.contract import Judgement, Part, Verdict, in_parts, judge, ledger
from claims.page import Entry, html, markdown, table
from claims.studies import BUDGET, CANON, EXTRAPOLATION, MASKED, MIXERS, PARTS, TASKS, Studies, setting
from poslab.measures.task import Task
from support.records import FLAT, STEEP, plan, reaches, write_run, write_scheme

CLAIMS = {claim.number: claim for claim in ledger()}
NOISE = (0.0, 0.01, -0.01, 0.004, -0.004)  # by seed; each arm has it in another order
ARMS = ("rope", "alibi", "t5", "learned", "sinusoidal")
READ = [28, 26, 36, 30, 37, 43]  # judged by the study extrapolation


def judged(folder: Path, study: str, number: int, reference: str = "rope") -> Judgement:
    """Judge a claim by the runs of one study."""
    names = sorted(path.name for path in (folder / "runs" / study).iterdir())
    plan(folder / "runs", names, reference, study=study)
    return judge(CLAIMS[number], Studies(folder / "runs", folder / "reports"))


def write_study(
    folder: Path,
    losses: Mapping[str, Mapping[float, float]],
    seeds: int = 5,
    study: str = EXTRAPOLATION.study,
    arms: Sequence[str] = ARMS,
    **manifest: object,
) -> Studies:
    """Write a study with these sliding losses; the other arms are flat."""
    for place, pos in enumerate(arms):
        for seed in range(seeds):
            noise = NOISE[(seed + place) % len(NOISE)]
            sliding = {k: loss + k * noise / 10 for k, loss in losses.get(pos, FLAT).items()}
            facts = {"study": study, "sliding": sliding, "shift": noise, **manifest}
            write_run(folder / "runs", f"{pos}-{seed}", pos, seed, **facts)
    plan(folder / "runs", [f"{pos}-0" for pos in arms], "rope", study=study)
    return Studies(folder / "runs", folder / "reports")


@pytest.mark.parametrize(
    ("parts", "whole", "answer"),
    [
        ((Verdict.HOLDS, Verdict.HOLDS), Verdict.HOLDS, "yes"),
        ((Verdict.HOLDS, Verdict.HOLDS_HERE), Verdict.HOLDS_HERE, "yes, here"),
        ((Verdict.REFUTED, Verdict.REFUTED_HERE), Verdict.REFUTED_HERE, "no, here"),
        ((Verdict.HOLDS, Verdict.REFUTED), Verdict.IN_PART, "in part"),
        ((Verdict.HOLDS, Verdict.UNDECIDED, Verdict.REFUTED), Verdict.IN_PART, "in part"),
        ((Verdict.HOLDS_HERE, Verdict.NOT_TESTED), Verdict.PARTLY, "in part, here; the rest open"),
        ((Verdict.REFUTED_HERE, Verdict.NOT_TESTED), Verdict.NOT_TESTED, "not tested"),
        ((Verdict.NOT_TESTED, Verdict.UNDECIDED), Verdict.UNDECIDED, "undecided"),
    ],
)
def test_the_verdict_of_a_claim_follows_from_its_parts(parts, whole, answer):
    judgement = in_parts(*(Part("It does.", verdict, "3") for verdict in parts), why="")
    assert judgement.verdict is whole
    assert judgement.answer == answer
    assert judgement.part("b").verdict is parts[1]


def verdicts(studies: Studies) -> dict[int, Judgement]:
    return {number: judge(CLAIMS[number], studies) for number in READ}


def test_noise_decides_nothing(tmp_path):
    judgements = verdicts(write_study(tmp_path, {pos: {1.0: 2.0, 8.0: 2.0} for pos in ARMS}))
    assert {judgement.verdict for judgement in judgements.values()} == {Verdict.UNDECIDED}


def test_a_clear_study_decides_either_way(tmp_path):
    better = {"rope": {1.0: 1.0, 8.0: 0.9}, "sinusoidal": {1.0: 2.0, 8.0: 1.9}}
    judgements = verdicts(write_study(tmp_path / "better", better))
    assert judgements[28].verdict is Verdict.HOLDS_HERE
    assert judgements[26].part("b").verdict is judgements[30].verdict is Verdict.HOLDS_HERE
    assert judgements[26].verdict is Verdict.IN_PART  # a longer window has distances that training lacked
    assert judgements[36].verdict is Verdict.REFUTED_HERE
    judgements = verdicts(write_study(tmp_path / "worse", {"rope": {1.0: 2.1, 8.0: 2.5}}))
    assert judgements[28].verdict is judgements[26].verdict is judgements[30].verdict is Verdict.REFUTED_HERE


@pytest.mark.parametrize(
    ("later", "verdict"),
    [(1.7, Verdict.HOLDS_HERE), (2.0, Verdict.UNDECIDED), (2.3, Verdict.UNDECIDED)],
)
def test_a_win_at_equal_steps_takes_a_win_at_each_budget(later, verdict, tmp_path):
    for steps, rope in ((1000, 1.7), (4000, later)):
        for place, pos in enumerate(("rope", "learned", "t5")):
            for seed, noise in enumerate(NOISE[place:] + NOISE[:place]):
                loss = (rope if pos == "rope" else 2.0) + noise
                trainer = {"max_steps": steps, "batch_size": 4, "learning_rate": 0.002}
                facts = {"sliding": {1.0: loss}, "config": {"trainer": trainer}}
                write_run(tmp_path / "runs", f"{pos}-{steps}-{seed}", pos, seed, BUDGET.study, **facts)
    assert judged(tmp_path, BUDGET.study, 30, "rope max_steps=1000").verdict is verdict


@pytest.mark.parametrize(("half", "verdict"), [(2.1, Verdict.HOLDS_HERE), (2.004, Verdict.UNDECIDED)])
def test_a_scheme_that_uses_no_context_does_not_extrapolate(half, verdict, tmp_path):
    studies = write_study(tmp_path, {"alibi": {0.5: half, 1.0: 2.0, 8.0: 2.0}})
    assert judge(CLAIMS[37], studies).part("a").verdict is verdict


def test_claims_on_layers_are_decided_either_way_and_part_by_part(tmp_path):
    arms = ("rope", "t5", "inkling", "ssmax", "rope_partial")
    above, below = {1.0: 2.3, 8.0: 2.3}, {1.0: 1.7, 8.0: 1.7}  # the others have 2.0 and 2.06

    def on_layers(name: str, losses: Mapping[str, Mapping[float, float]]) -> dict[int, Judgement]:
        studies = write_study(tmp_path / name, losses, study=PARTS.study, arms=arms)
        return {number: judge(CLAIMS[number], studies) for number in (47, 51, 53)}

    up = on_layers("above", dict.fromkeys(arms[2:], above))
    down = on_layers("below", dict.fromkeys(arms[2:], below))
    assert (up[47].verdict, down[47].verdict) == (Verdict.REFUTED_HERE, Verdict.HOLDS_HERE)
    for part in "bc":
        assert up[51].part(part).verdict is Verdict.REFUTED_HERE
        assert down[51].part(part).verdict is Verdict.HOLDS_HERE
    assert (up[53].verdict, down[53].verdict) == (Verdict.HOLDS_HERE, Verdict.REFUTED_HERE)
    flat = on_layers("flat", {"rope": FLAT})
    assert flat[47].verdict is Verdict.UNDECIDED
    assert flat[53].part("a").verdict is Verdict.HOLDS_HERE  # the gain is below 0.02 nats
    assert flat[53].part("b").verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(("faster", "verdict"), [(True, Verdict.HOLDS_HERE), (False, Verdict.REFUTED_HERE)])
def test_roformer_against_bert_is_decided_by_tokens_to_the_loss_of_learned(tmp_path, faster, verdict):
    for pos in ("learned", "rope"):
        for seed in range(5):
            quick = (pos == "rope") is faster
            noise = NOISE[(seed + (pos == "rope")) % 5]
            curve = [3.0 - (1 - (1 - i / 100) ** (3 if quick else 2)) + noise / 4 for i in range(101)]
            write_run(tmp_path / "runs", f"{pos}-{seed}", pos, seed, study=MASKED.study, curve=curve)
    assert judged(tmp_path, MASKED.study, 32, "learned").verdict is verdict


@pytest.mark.parametrize(
    ("loss", "past", "verdict", "parts"),
    [
        (2.0, 0.0, Verdict.HOLDS_HERE, "here here here"),
        (2.3, 0.0, Verdict.IN_PART, "refuted here here"),
        (2.0, 0.3, Verdict.IN_PART, "here here refuted"),
        (2.6, 0.3, Verdict.REFUTED_HERE, "refuted refuted refuted"),
    ],
)
def test_recurrent_mixers_are_compared_with_attention_with_and_without_positions(
    loss, past, verdict, parts, tmp_path
):
    """Attention has 2.0 with RoPE and 2.4 without; mixers have `loss` at L and `past` more at 8 L."""
    arms = {("rope", "flash"): 2.0, ("none", "flash"): 2.4}
    arms |= {("none", mixer): loss for mixer in ("gated_linear", "gated_delta")}
    for place, ((pos, attention), at_length) in enumerate(arms.items()):
        more = past if attention.startswith("gated") else 0.0
        for seed in range(5):
            noise = NOISE[(seed + place) % len(NOISE)]
            sliding = {k: at_length + noise + more * (k > 1) + k * noise / 100 for k in (0.5, 1.0, 8.0)}
            config = {"pos": {"scheme": pos}, "attention": {"kind": attention}}
            facts = {"study": MIXERS.study, "attention": attention, "sliding": sliding, "config": config}
            write_run(tmp_path / "runs", f"{pos}-{attention}-{seed}", pos, seed, **facts)
    judgement = judged(tmp_path, MIXERS.study, 39, "rope / flash")
    assert judgement.verdict is verdict
    words = {"here": Verdict.HOLDS_HERE, "refuted": Verdict.REFUTED_HERE}
    expected = [words[word] for word in parts.split()]
    assert [part.verdict for part in judgement.parts.values()] == 2 * expected


@pytest.mark.parametrize(
    ("none", "verdict"), [(48, Verdict.HOLDS_HERE), (16, Verdict.REFUTED_HERE), (0, Verdict.UNDECIDED)]
)
def test_models_without_positions_are_compared_with_others_on_tasks(none, verdict, tmp_path):
    """Over eight seeds rope answers up to 32, and none up to `none`; 0: it has not learned the task."""
    for pos, upto in (("rope", 32), ("none", none), ("learned", 16)):
        sizes = [16] if pos == "learned" else [16, 32, 48, 64]  # undefined past it
        counts = {"task": "copy", "longest": 16, "samples": 100, "tokens": 100, "nll": 1.0}
        table = [
            {**counts, "size": k, "exact": 100 * (k <= upto), "correct": 100 * (k <= upto)} for k in sizes
        ]
        config = {"data": {"source": "none"}, "objective": {"kind": "copy", "longest": 16, "tested": 64}}
        facts = {"config": {**config, "pos": {"scheme": pos}}, "tables": {Task.table: table}}
        for seed in range(8):
            write_run(tmp_path / "runs", f"{pos}-{seed}", pos, seed, study=TASKS.study, **facts)
    judgement = judged(tmp_path, TASKS.study, 46)
    assert judgement.verdict is verdict
    assert next(iter(judgement.parts.values())).statement == "On copy."
    assert "learned 1.00" not in judgement.numbers


def test_a_verdict_names_every_length_and_budget_of_the_reference(tmp_path):
    for length in (8, 16):
        config = {"context_length": length}
        write_run(tmp_path / "runs", f"rope-{length}", study=TASKS.study, config=config)
    results = Studies(tmp_path / "runs", tmp_path / "reports").results(TASKS.study)
    assert results is not None
    assert "L = 8 to 16, 1.6 k, 3.2 k tokens (1.6, 3.2 per parameter)" in setting(results)


def test_a_study_with_too_few_seeds_decides_nothing_and_is_listed_as_missing(tmp_path):
    judgements = verdicts(write_study(tmp_path, {"rope": STEEP}, seeds=3))
    for number in (28, 26, 30):
        assert judgements[number].verdict is Verdict.UNDECIDED
        assert EXTRAPOLATION in judgements[number].missing
        assert "3 seeds" in judgements[number].value


def test_text_of_records_is_escaped_on_the_page(tmp_path):
    hostile = "<img src=x onerror=alert(1)>|`[x](javascript:alert(1))"
    data = {"name": hostile, "fingerprint": "f", "vocabulary": 256}
    studies = write_study(tmp_path, {"rope": STEEP}, data=data)
    entries = tuple(Entry(CLAIMS[number], judgement) for number, judgement in verdicts(studies).items())
    drawn = {figure.name: b"" for one in entries for figure in one.judgement.figures}
    page, text = html(entries, drawn, {"x": hostile}), markdown(entries, {"x": hostile})
    assert "&lt;img src=x" in page
    assert "<img src=x" not in page + text
    assert not re.search(r"(?<!\\)\]\(javascript", text)  # \] does not end a link
    assert hostile in table(entries)


def test_a_damaged_study_is_named_and_decides_nothing(tmp_path):
    folder = tmp_path / "reports" / EXTRAPOLATION.study
    folder.mkdir(parents=True)
    (folder / "records.tar.xz").write_bytes(b"nothing of the kind")
    studies = Studies(tmp_path / "runs", tmp_path / "reports")
    assert judge(CLAIMS[28], studies).verdict is Verdict.NOT_TESTED
    assert "damaged" in studies.unreadable[EXTRAPOLATION.study]


def test_denominators_of_trained_models_are_printed_with_the_chosen_example(tmp_path):
    def head(layer: int, vanished: int, lowest: float) -> dict[str, float]:
        sums = {"queries": 200, "vanished": vanished, "lowest": lowest, "weights": 1000, "negative": 30}
        return {"layer": layer, "head": 0, **sums}

    without = judge(CLAIMS[18], Studies(tmp_path / "runs", tmp_path / "reports"))
    assert [each.study for each in without.missing] == ["denominators"]
    for seed in range(2):
        facts = {"study": "denominators", "attention": "linear", "seed": seed}
        layers = [head(0, 0, 0.4), head(1, 3 + seed, -0.25)]
        write_scheme(tmp_path / "runs", f"d{seed}", denominators=layers, **facts)
    judgement = judged(tmp_path, "denominators", 18, "rope / linear")
    assert judgement.verdict is without.verdict is Verdict.HOLDS
    assert not judgement.missing
    # 7 of the 400 queries of layer 1, none of layer 0's; 120 of 4,000 weights.
    assert "queries per layer: at or below 0 in 0 to 1.8 % by layer, the lowest −0.25" in judgement.numbers
    assert "; 3 % of the weights are below 0 (" in judgement.numbers
    assert "2 seeds" in judgement.numbers
    assert "up to 1.8 %" in judgement.why


@pytest.mark.parametrize(
    ("shares", "control", "verdict"),
    [
        ((0.07, 0.08, 0.06, 0.09, 0.07), True, Verdict.REFUTED_HERE),
        ((0.001, -0.002, 0.0, -0.001, 0.002), True, Verdict.UNDECIDED),
        ((0.07, 0.08), True, Verdict.UNDECIDED),
        ((0.07, 0.08, 0.06, 0.09, 0.07), False, Verdict.NOT_TESTED),
    ],
)
def test_claim_38_takes_a_probe_with_a_control(shares, control, verdict, tmp_path):
    sums = {"tokens": 80, "squared_deviation": 1.0}
    if control:
        sums |= {"fitted_windows": 1000, "penalty": 0.01, "shuffled_error": 1.0}
    for seed, share in enumerate(shares):
        facts = {"study": CANON.study, "seed": seed, "config": {"pos": {"scheme": "rope"}}}
        errors = (1 - share / 2, 1 - share)
        places = [{"layer": layer, "squared_error": error, **sums} for layer, error in enumerate(errors)]
        write_scheme(tmp_path / "runs", f"v{seed}", places=places, distance=reaches([[3.0]]), **facts)
    judgement = judged(tmp_path, CANON.study, 38)
    assert judgement.verdict is verdict
    assert bool(judgement.missing) is (len(shares) < 5 or not control)
