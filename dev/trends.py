"""Measure how often a ladder's intervals contain the truth, on simulated curves with known exponents.

python dev/trends.py           1,000 ladders each with two and three seeds, eight kinds of noise: minutes
python dev/trends.py needs     100 ladders each: tokens and parameters that an arm needs, relative to another
python dev/trends.py noise     the noise of the gaps in the archived study `ladder`

Losses are E + A (k_N N)^-alpha + B (k_D D)^-beta (Hoffmann et al. 2022, with their exponents), and one arm
needs fewer tokens because of its k_D. The gap's noise over seeds and documents is that of `sweep=ladder`,
pooled over its sizes and arms, with its number of documents; every rung scores the same documents. Other
lines have more or less of either noise, documents of unequal size, or gaps that deviate from their curve by
more than seeds or text explain. A percentile bootstrap of seeds and documents is shown for comparison.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from poslab.analysis.arms import Arm
from poslab.analysis.estimates import ArmFigures, estimates
from poslab.analysis.ladder import Ladder, Rung, design, shares_of, trend
from poslab.analysis.results import figures, subject_of
from poslab.analysis.scaling import scaling
from poslab.analysis.spread import noise_of_losses
from poslab.record.archive import load_available
from poslab.record.facts import Manifest
from poslab.record.losses import LossSum
from poslab.record.measures import mean_loss
from poslab.record.reader import Run


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a gap in one loss, in nats."""

    seeds: float  # between seeds, over all documents
    text: float  # of the mean over documents, common to all seeds
    per_seed: float  # of one seed's mean over documents, specific to the seed


AT_L = Noise(0.0231, 0.0115, 0.0052)
AT_8L = Noise(0.108, 0.0398, 0.0268)
FIGURE = "loss_1x"
# Parameters, and tokens per parameter: four sizes with proportional budgets, and the smallest with ten times.
RUNGS = ((1.2e5, 8), (3.5e5, 8), (8.1e5, 8), (2.7e6, 8), (1.2e5, 80))
DOCUMENTS = 63
BOOTSTRAP = 400
BETTER = 1.2  # k_D of the better arm


def measured() -> dict[str, Noise]:
    """Return the noise of gaps to the reference in the archived ladder by loss, pooled over all gaps."""
    reports = Path(__file__).parent.parent / "reports"
    ladder = figures(load_available("ladder", Path("runs"), reports), subject_of("ladder"), None, None).rungs
    assert ladder is not None
    noise_by_loss = {}
    for figure, measured_in in zip(ladder.figures, (("non_overlapping", 1.0), ("sliding", 8.0)), strict=True):
        variances = []
        for rung in ladder.rungs:
            for label in sorted(rung.arms.keys() - {ladder.reference}):
                segments, reference_segments = (
                    {run.seed: run.segments[measured_in] for run in rung.arms[name].arm.finished}
                    for name in (label, ladder.reference)
                )
                seeds = sorted(segments.keys() & reference_segments.keys())
                noises = [
                    noise_of_losses([(segments[seed], 1, False), (reference_segments[seed], -1, False)])
                    for seed in seeds
                ]
                gap = rung.gap(label, ladder.reference, figure)
                assert gap is not None
                assert gap.text is not None
                means, reference_means = (
                    rung.arms[name].by_seed(figure) for name in (label, ladder.reference)
                )
                gaps = [means[seed] - reference_means[seed] for seed in seeds]
                total = np.mean([noise.variance for noise in noises if noise is not None])
                per_seed = (total - gap.text.variance) / (1 - 1 / len(seeds))
                variances.append((np.var(gaps, ddof=1) - per_seed, total - per_seed, per_seed))
        noise_by_loss[figure] = Noise(*np.sqrt(np.mean(variances, axis=0)).tolist())
    return noise_by_loss


def loss(parameters: float, tokens: float, k: float) -> float:
    return float(1.0 + 30 * parameters**-0.34 + 40 * (k * tokens) ** -0.28)


def figures_of(label: str, seeds: Mapping[int, Mapping[str, LossSum]], flops: float) -> ArmFigures:
    """Return an arm with a loss for each document, by seed."""
    runs, rows = [], []
    for seed, parts in seeds.items():
        manifest = Manifest(seed=seed, pos=label, attention="flash", config={"context_length": 128})
        runs.append(Run(f"{label}{seed}", "done", "", manifest, segments={("non_overlapping", 1.0): parts}))
        rows.append({"seed": seed, FIGURE: mean_loss(parts.values()), "flops": flops})
    figures = estimates(rows, (FIGURE, "flops"))
    return ArmFigures(Arm(label, label, "flash", tuple(runs), {}), figures, tuple(rows))


def made_up(
    random: np.random.Generator,
    seeds: int,
    noise: Noise,
    later: float = 1.0,
    beside: float = 0.0,
    uneven: float = 0.0,
) -> tuple[Ladder, list[float]]:
    """Return a ladder with noise, and its true gaps. The noise over seeds grows to `later` times.

    Each gap deviates from its curve by a draw with standard deviation `beside`, the same in all seeds.
    `uneven` is the standard deviation of the logarithm of a document's tokens.
    """
    tokens = random.lognormal(7, uneven, DOCUMENTS).round()
    share = tokens / tokens.sum()
    unit = 1 / np.sqrt((share**2).sum())
    common, slope = random.normal(0, noise.text * unit, (2, DOCUMENTS))
    rungs, truth = [], []
    order = sorted(RUNGS, key=lambda rung: rung[0] ** 2 * rung[1])
    for (parameters, budget), growth in zip(order, np.geomspace(1, later, len(order)), strict=True):
        flops = 6 * parameters**2 * budget
        means = {label: loss(parameters, parameters * budget, k) for label, k in (("a", 1.0), ("b", BETTER))}
        truth.append(means["b"] - means["a"])
        far = np.log(flops / 1e13) / 6
        arms = {}
        means["b"] += random.normal(0, beside)
        text_noise = np.cos(far) * common + np.sin(far) * slope
        for label, mean in means.items():
            seed_noise = random.normal(0, noise.seeds * growth / np.sqrt(2), (seeds, 1))
            document_noise = random.normal(0, noise.per_seed * unit / np.sqrt(2), (seeds, DOCUMENTS))
            losses = mean + seed_noise + document_noise + (label == "b") * text_noise
            arms[label] = figures_of(
                label,
                {
                    seed: {
                        str(i): LossSum(float(nats * n), int(n), int(n), str(i))
                        for i, (nats, n) in enumerate(zip(row, tokens, strict=True))
                    }
                    for seed, row in enumerate(losses)
                },
                flops,
            )
        rungs.append(Rung("a", arms, int(parameters), float(budget), flops))
    return Ladder("a", ("a", "b"), tuple(rungs), (FIGURE,)), truth


def bootstrapped(random: np.random.Generator, rungs: Ladder, weights: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval of a weighted sum of gaps, over seeds and documents."""

    def gaps(rung: Rung) -> np.ndarray:
        losses, reference_losses = (
            [
                [part.nll for part in run.segments["non_overlapping", 1.0].values()]
                for run in rung.arms[label].arm.runs
            ]
            for label in "ba"
        )
        return np.array(losses) - np.array(reference_losses)

    summed = np.tensordot(weights, [gaps(rung) for rung in rungs.rungs], 1)
    tokens = np.array(
        [p.tokens for p in rungs.rungs[0].arms["a"].arm.runs[0].segments["non_overlapping", 1.0].values()]
    )
    seeds, documents = summed.shape
    drawn = random.multinomial(seeds, np.ones(seeds) / seeds, BOOTSTRAP) / seeds
    texts = random.multinomial(documents, np.ones(documents) / documents, BOOTSTRAP)
    low, high = np.percentile(((drawn @ summed) * texts).sum(1) / (texts @ tokens), [2.5, 97.5])
    return float(low), float(high)


def coverage(
    random: np.random.Generator,
    ladders: int,
    seeds: int,
    noise: Noise = AT_L,
    later: float = 1.0,
    beside: float = 0.0,
    uneven: float = 0.0,
    boot: bool = False,
) -> dict[str, float]:
    """Return how often intervals contain the true last gap, change and slope in simulated ladders."""
    covered = Counter[str]()
    for _ in range(ladders):
        rungs, truth = made_up(random, seeds, noise, later, beside, uneven)
        estimate = trend(rungs, "b", FIGURE)
        assert estimate is not None
        weights = np.linalg.pinv(design(rungs.rungs, shares_of(rungs)))[1] * np.log(10)
        for name, interval, true in (
            ("gap", estimate.last, truth[-1]),
            ("change", estimate.change, truth[-1] - truth[0]),
            ("trend", estimate.per_tenfold, float(weights @ truth)),
        ):
            if name != "trend" and beside:
                continue  # the true gap is no longer that of its curve
            covered[name] += abs(interval.mean - true) <= (interval.half_width or 0)
        if boot:
            last = np.eye(len(truth))[-1]
            for name, row in (("gap, bootstrap", last), ("trend, bootstrap", weights)):
                low, high = bootstrapped(random, rungs, row)
                covered[name] += low <= row @ truth <= high
    return {name: count / ladders for name, count in covered.items()}


def coverage_of_needs(random: np.random.Generator, ladders: int, seeds: int) -> dict[str, float]:
    """Return how often intervals contain the tokens and parameters needed, and how often they separate."""
    covered = Counter[str]()
    for _ in range(ladders):
        fit = scaling(made_up(random, seeds, AT_L)[0], "b", FIGURE)
        assert fit is not None
        for name, need, true in (("tokens", fit.tokens, 1 / BETTER), ("parameters", fit.parameters, 1.0)):
            covered[name] += (need.low or 0.0) <= true <= (need.high or np.inf)
            covered[f"{name} separated"] += need.reading != "cannot tell"
    return {name: count / ladders for name, count in covered.items()}


def main(subject: str) -> None:
    """Print each coverage when it is computed."""
    if subject == "noise":
        for figure, noise in measured().items():
            print(f"{figure}: {noise}")
        return
    for seeds in (2, 3):
        if subject == "needs":
            _show(f"{seeds} seeds", coverage_of_needs(np.random.default_rng(1), 100, seeds))
            continue
        for case, noise, changes in (
            ("as measured at L", AT_L, {}),
            ("as measured at 8 L", AT_8L, {}),
            ("over seeds 2.5 times as large at the end", AT_L, {"later": 2.5}),
            ("over seeds 0.4 times as large at the end", AT_L, {"later": 0.4}),
            ("over text three times as large", replace(AT_L, text=3 * AT_L.text), {}),
            ("over seeds a third as large", replace(AT_L, seeds=AT_L.seeds / 3), {}),
            ("with documents of unequal size", AT_L, {"uneven": 0.7}),
            ("with gaps 0.1 nats off their curve", AT_L, {"beside": 0.1}),
        ):
            random = np.random.default_rng(0)
            shares = coverage(random, 1000, seeds, noise, **changes, boot="later" not in changes)
            _show(f"{seeds} seeds, noise {case}", shares)


def _show(case: str, shares: Mapping[str, float]) -> None:
    print(f"{case}: {', '.join(f'{name} {share:.3f}' for name, share in shares.items())}", flush=True)


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
