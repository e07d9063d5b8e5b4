"""A figure of a table that runs have already: one file, and no run is measured again."""

from poslab.measures import Measurement, figures_of
from poslab.record.reader import load
from poslab.record.schema import EXTRAPOLATION
from support.records import write_run


class WorstSegment(Measurement):
    table = EXTRAPOLATION

    def summarise(self, table):
        rows = table[(table.protocol == "sliding") & (table.multiple == 1)]
        return (rows.nll / rows.tokens).groupby(rows.run).max().to_frame("worst_segment")


def test_a_measurement_may_add_figures_to_another_ones_table(tmp_path):
    for seed, loss in enumerate((2.0, 2.5)):
        write_run(tmp_path, f"run{seed}", seed=seed, sliding={1.0: loss})
    runs = load("made_up", tmp_path).runs
    found = figures_of(WorstSegment(), runs)
    worst = [found[run.name]["worst_segment"] for run in runs]
    losses = [
        [stretch.nll / stretch.tokens for stretch in run.segments["sliding", 1.0].values()] for run in runs
    ]
    assert worst == [max(segments) for segments in losses]
    assert worst[1] > worst[0]
