"""Measure how accurate the times of `plan=true` are: python benchmarks/foreseen_times.py [reports=reports]

For every finished run in the archived studies, compute the ratio of the time predicted from the other runs of
its study to the recorded time: once with the other seeds of its arm, once without its scheme and attention.
"""

import statistics
import sys
from pathlib import Path

from poslab.record.archive import ARCHIVE, load_available
from poslab.record.reader import Run
from poslab.study.cost import Timed, cost_of, rate_for, timed


def main(reports: Path) -> None:
    print(f"{'study':<14}{'others':<14}{'runs':>5}{'median':>8}{'80 % of them':>16}")
    for path in sorted(reports.glob(f"*/{ARCHIVE}")):
        (records,) = load_available(path.parent.name, reports / "none", reports)
        finished = [run for run in records.runs if run.status == "done"]
        recorded = [(run, run_time) for run in finished if (run_time := timed(run.manifest)) is not None]
        for basis in ("same arm", "other schemes"):
            ratios = sorted(filter(None, (_ratio(run, time, recorded, basis) for run, time in recorded)))
            if len(ratios) > 1:
                tenths = statistics.quantiles(ratios, n=10)
                span = f"{tenths[0]:.2f} to {tenths[-1]:.2f}"
                print(
                    f"{path.parent.name:<14}{basis:<14}{len(ratios):>5}{statistics.median(ratios):>8.2f}{span:>16}"
                )


def _ratio(run: Run, time: Timed, recorded: list[tuple[Run, Timed]], basis: str) -> float | None:
    """Return the predicted time over the recorded one; None if no other run allows a prediction."""
    known = [
        known_time
        for known_run, known_time in recorded
        if known_run is not run and (basis == "same arm" or _parts(known_run) != _parts(run))
    ]
    cost = cost_of(time.settings, run.manifest.corpus.vocabulary or 0, run.manifest.tokens)
    rate, true = (rate_for(time.settings, cost, runs) for runs in (known, [time]))
    return None if rate is None or true is None else true / rate


def _parts(run: Run) -> tuple[object, object]:
    return run.config["pos"], run.config["attention"]


if __name__ == "__main__":
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    main(Path(options.get("reports", "reports")))
