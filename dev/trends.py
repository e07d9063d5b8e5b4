"""How often intervals of a ladder hold the truth: made-up curves with known exponents, noise as measured.

python dev/trends.py           1,000 ladders each of two and three seeds, with six kinds of noise: minutes
python dev/trends.py needs     100 ladders each: the tokens and parameters that an arm needs over another

Losses are E + A (k_N N)^-alpha + B (k_D D)^-beta (Hoffmann et al. 2022, with their exponents), and one arm
needs fewer tokens by its k_D. The gap's noise over seeds is that of T5 against RoPE in `sweep=fair` (a
standard deviation of 0.011 nats), and that over documents about half to six times it, the same text in every
rung of a ladder. Gaps may also lie beside their curve, by more than any seed or text would give them. A
percentile bootstrap of seeds and documents stands beside.
"""

import sys
from collections import Counter
from collections.abc import Mapping

import numpy as np

from poslab.analysis.arms import Arm
from poslab.analysis.estimates import ArmFigures, estimates
from poslab.analysis.ladder import Ladder, Rung, design, shares_of, trend
from poslab.analysis.scaling import scaling
from poslab.record.facts import Manifest
from poslab.record.losses import LossSum
from poslab.record.measures import mean_loss
from poslab.record.reader import Run

FIGURE = "loss_1x"
# Parameters and tokens per parameter: four sizes in proportion, and the smallest with ten times the budget.
RUNGS = ((1.2e5, 8), (3.5e5, 8), (8.1e5, 8), (2.7e6, 8), (1.2e5, 80))
DOCUMENTS = 35
SEEDS, TEXT = 0.011, 0.02  # standard deviation of a gap over seeds; standard error over documents
BOOTSTRAP = 400
BETTER = 1.2  # k_D of one arm


def loss(parameters: float, tokens: float, k: float) -> float:
    return float(1.0 + 30 * parameters**-0.34 + 40 * (k * tokens) ** -0.28)


def figures_of(label: str, seeds: Mapping[int, Mapping[str, LossSum]], flops: float) -> ArmFigures:
    """Return an arm with a loss in each document, by seed."""
    runs, rows = [], []
    for seed, parts in seeds.items():
        manifest = Manifest(seed=seed, pos=label, attention="flash", config={"context_length": 128})
        runs.append(Run(f"{label}{seed}", "done", "", manifest, segments={("non_overlapping", 1.0): parts}))
        rows.append({"seed": seed, FIGURE: mean_loss(parts.values()), "flops": flops})
    figures = estimates(rows, (FIGURE, "flops"))
    return ArmFigures(Arm(label, label, "flash", tuple(runs), {}), figures, tuple(rows))


def made_up(
    random: np.random.Generator, seeds: int, text: float, later: float, beside: float = 0.0
) -> tuple[Ladder, list[float]]:
    """Return a ladder with noise, and its true gaps; noise over seeds grows to `later` times.

    Each gap lies beside its curve by a draw of standard deviation `beside`, alike in all seeds.
    """
    tokens = random.lognormal(7, 0.7, DOCUMENTS).round()
    share = tokens / tokens.sum()
    unit = text / np.sqrt((share**2).sum())
    common, slope = random.normal(0, unit, (2, DOCUMENTS))
    rungs, truth = [], []
    order = sorted(RUNGS, key=lambda rung: rung[0] ** 2 * rung[1])
    for (parameters, budget), growth in zip(order, np.geomspace(1, later, len(order)), strict=True):
        flops = 6 * parameters**2 * budget
        means = {label: loss(parameters, parameters * budget, k) for label, k in (("a", 1.0), ("b", BETTER))}
        truth.append(means["b"] - means["a"])
        far = np.log(flops / 1e13) / 6
        arms = {}
        means["b"] += random.normal(0, beside)
        for label, mean in means.items():
            noise = random.normal(0, SEEDS * growth / np.sqrt(2), seeds)
            apart = random.normal(0, unit / 4, (seeds, DOCUMENTS))
            by_document = mean + noise[:, None] + apart + (label == "b") * (common + far * slope)
            arms[label] = figures_of(
                label,
                {
                    seed: {
                        str(i): LossSum(float(nats * n), int(n), int(n), str(i))
                        for i, (nats, n) in enumerate(zip(row, tokens, strict=True))
                    }
                    for seed, row in enumerate(by_document)
                },
                flops,
            )
        rungs.append(Rung("a", arms, int(parameters), float(budget), flops))
    return Ladder("a", ("a", "b"), tuple(rungs), (FIGURE,)), truth


def bootstrapped(random: np.random.Generator, rungs: Ladder, weights: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval of a weighted sum of gaps, over seeds and documents."""

    def gaps(rung: Rung) -> np.ndarray:
        ours, theirs = (
            [
                [part.nll for part in run.segments["non_overlapping", 1.0].values()]
                for run in rung.arms[label].arm.runs
            ]
            for label in "ba"
        )
        return np.array(ours) - np.array(theirs)

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
    text: float = TEXT,
    later: float = 1.0,
    boot: bool = False,
    beside: float = 0.0,
) -> dict[str, float]:
    """Return the share of ladders whose intervals hold the truth: the last gap, the change, and the slope."""
    held = Counter[str]()
    for _ in range(ladders):
        rungs, truth = made_up(random, seeds, text, later, beside)
        found = trend(rungs, "b", FIGURE)
        assert found is not None
        weights = np.linalg.pinv(design(rungs.rungs, shares_of(rungs)))[1] * np.log(10)
        for name, at, true in (
            ("gap", found.last, truth[-1]),
            ("change", found.change, truth[-1] - truth[0]),
            ("trend", found.per_tenfold, float(weights @ truth)),
        ):
            if name != "trend" and beside:
                continue  # the truth of a gap is that of its curve no more
            held[name] += abs(at.mean - true) <= (at.half_width or 0)
        if boot:
            last = np.eye(len(truth))[-1]
            for name, row in (("gap, bootstrap", last), ("trend, bootstrap", weights)):
                low, high = bootstrapped(random, rungs, row)
                held[name] += low <= row @ truth <= high
    return {name: count / ladders for name, count in held.items()}


def coverage_of_needs(random: np.random.Generator, ladders: int, seeds: int, text: float) -> dict[str, float]:
    """Return the share of ladders whose intervals hold the tokens and parameters needed, and that tell."""
    held = Counter[str]()
    for _ in range(ladders):
        fit = scaling(made_up(random, seeds, text, 1.0)[0], "b", FIGURE)
        assert fit is not None
        for name, need, true in (("tokens", fit.tokens, 1 / BETTER), ("parameters", fit.parameters, 1.0)):
            held[name] += (need.low or 0.0) <= true <= (need.high or np.inf)
            held[f"{name} told"] += need.reading != "cannot tell"
    return {name: count / ladders for name, count in held.items()}


def main(needs: bool) -> None:
    """Print each coverage as it is known."""
    for seeds in (2, 3):
        if needs:
            _show(f"{seeds} seeds", coverage_of_needs(np.random.default_rng(1), 100, seeds, TEXT))
            continue
        for text, later, beside in (
            (TEXT, 1.0, 0.0),
            (TEXT, 2.5, 0.0),
            (TEXT, 0.4, 0.0),
            (3 * TEXT, 1.0, 0.0),
            (TEXT / 4, 1.0, 0.0),
            (TEXT, 1.0, 0.1),
        ):
            shares = coverage(np.random.default_rng(0), 1000, seeds, text, later, later == 1, beside)
            noise = f"text {text:g}, seeds' noise x {later:g} at the end, {beside:g} beside the curve"
            _show(f"{seeds} seeds, {noise}", shares)


def _show(case: str, shares: Mapping[str, float]) -> None:
    print(f"{case}: {', '.join(f'{name} {share:.3f}' for name, share in shares.items())}", flush=True)


if __name__ == "__main__":
    main("needs" in sys.argv)
