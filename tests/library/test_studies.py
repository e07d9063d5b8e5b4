"""Tables and figures of a study have the numbers of its records and its report."""

import statistics

import pandas
import pytest

import poslab
from poslab.analysis.results import gather
from poslab.record.measures import mean_loss
from poslab.record.reader import ReportError, load_run
from poslab.report.render import paper
from poslab.report.render.canvas import save, style
from poslab.report.sections.contents import document
from support.records import L, plan, write_rescaled, write_run, write_scheme


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two arms with two seeds, a diverged run, a failed one, and one measured under other rotations."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_scheme(folder, f"rope-{seed}", seed=seed, shift=seed / 10)  # with tables without rows
        write_run(folder, f"alibi-{seed}", "alibi", seed, shift=-0.5 + seed / 10)
    write_run(folder, "alibi-2", "alibi", 2, status="diverged", reason="the loss is no number")
    write_run(folder, "t5-0", "t5", status="failed", reason="no memory")
    lines = {"pi": ({1.0: 2.5, 2.0: 2.5}, 2.5)}
    write_rescaled(folder, "ntk-0", lines, pos="rope_ntk")
    plan(folder, [f"{pos}-{seed}" for seed in (0, 1) for pos in ("rope", "alibi")], "rope")
    return folder


@pytest.fixture(scope="module")
def study(runs):
    return poslab.read("made_up", runs=runs)


@pytest.mark.parametrize("name", ["runs", "curves", "extrapolation", "positions"])
def test_pandas_accepts_each_table(study, name):
    table = getattr(study, name)
    frame = pandas.DataFrame(table)
    assert list(frame.columns) == list(table)
    assert {"study", "run", "arm", "seed"} <= set(frame.columns)
    assert len(frame) > 4


def test_each_column_of_a_table_has_one_type(study, tmp_path):
    for pos, base in (("rope", 100), ("rope_ntk", 100.5)):
        write_run(tmp_path, pos, pos, config={"pos": {"scheme": pos, "base": base}})
    others = poslab.read("made_up", runs=tmp_path).tables
    assert others["settings"]["pos.base"] == [100.0, 100.5]
    for name, table in (*study.tables.items(), *others.items()):
        for column, values in table.items():
            assert len({type(value) for value in values} - {type(None)}) <= 1, (name, column)


def test_curves_lengths_and_positions_are_those_of_the_records(study, runs):
    one = load_run(runs / "made_up" / "alibi-1")
    curves = pandas.DataFrame(study.curves).query("run == 'alibi-1'")
    assert list(curves["loss"]) == [point.loss for point in one.validations]
    assert list(curves["step"]) == [point.step for point in one.validations]
    expected = {int(k * L): mean_loss(one.segments["sliding", k].values()) for k in (1, 2, 4, 8)}
    lengths = pandas.DataFrame(study.extrapolation).query("run == 'alibi-1' and protocol == 'sliding'")
    assert dict(zip(lengths["length"], lengths["loss"], strict=True)) == expected
    positions = pandas.DataFrame(study.positions).query("run == 'alibi-1'")
    assert list(positions["position"]) == list(range(8 * L))
    assert statistics.fmean(positions["loss"]) == pytest.approx(1.6 + 6 / 8)
    table = study.table("extrapolation")  # the rows of the runs' files
    assert set(table.run) == {"rope-0", "rope-1", "alibi-0", "alibi-1", "ntk-0"}
    own = table.query("run == 'alibi-1' and protocol == 'sliding'")
    assert dict(zip(own.length, own.nll / own.tokens, strict=True)) == expected


def test_unmeasured_runs_have_no_row_and_other_rotations_have_separate_rows(study):
    assert "alibi-2" in study.curves["run"]  # until it diverged
    assert not {"alibi-2", "t5-0"} & set(study.extrapolation["run"])
    assert dict(zip(study.runs["run"], study.runs["status"], strict=True))["t5-0"] == "failed"
    rescaled = pandas.DataFrame(study.extrapolation).query("run == 'ntk-0' and protocol == 'sliding'")
    assert set(rescaled["rescale"]) == {"none", "pi"}
    assert rescaled.query("rescale == 'pi' and multiple == 2.0")["loss"].item() == pytest.approx(2.5)


def test_a_figure_is_drawn_as_the_report_draws_it(study, runs):
    first, *others = document(gather("made_up", runs, None)).charts
    name = study.figures[0]
    assert study.figures == (first.name, *(chart.name for chart in others))
    with style():
        assert save(study.figure(name), "png") == paper.draw(first)["png"]
    assert study.figure(name)._repr_png_().startswith(b"\x89PNG")  # which notebooks call


def difference(study, arm, figure):
    return study.difference(arm, "alibi no longest", figure)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda study: study.table("extrapolatoin"), "did you mean extrapolation"),
        (
            lambda study: study.table("scheme_bias"),
            "it has extrapolation, position, rescaled, rescaled_position$",
        ),
        (lambda study: study.by_seed("rope no longest", "slidng_8x"), "did you mean sliding_8x"),
        (lambda study: difference(study, "rope no longest", "sliding_9x"), "no figure 'sliding_9x'"),
        (lambda study: difference(study, "rop", "sliding_8x"), "no arm 'rop'"),
        (lambda study: study.config(None), "no arm None"),  # as of a trial in `runs`
        (lambda study: study.figure("tokens_to_targt"), r"\(did you mean tokens_to_target\?\); it has "),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_one(study, ask, message):
    with pytest.raises(ReportError, match=message):
        ask(study)


def test_an_unknown_study_or_reference_is_refused(runs):
    with pytest.raises(ReportError, match="studies with records: made_up"):
        poslab.read("made_out", runs=runs)
    with pytest.raises(ReportError, match="reference"):
        poslab.read("made_up", runs=runs, reference="nothing")


def test_two_arms_are_compared_by_seed(study):
    rope, alibi = study.tables["arms"]["arm"][:2]
    summary = pandas.DataFrame(study.runs)
    losses = summary[summary["status"] == "done"].pivot(index="seed", columns="arm", values="sliding_8x")
    expected = (losses[alibi] - losses[rope]).dropna()
    found = study.difference(alibi, rope, "sliding_8x")
    assert found.n == len(expected) == 2
    assert found.mean == pytest.approx(expected.mean(), rel=1e-12)
    assert found == poslab.paired(study.by_seed(alibi, "sliding_8x"), study.by_seed(rope, "sliding_8x"))
    assert poslab.estimate(list(expected)).half_width == pytest.approx(found.half_width, rel=1e-9)
    assert study.config(alibi)["pos"] != study.config(rope)["pos"]


def test_times_to_a_loss_are_those_of_the_report(study):
    rope, alibi = study.tables["arms"]["arm"][:2]
    summary = pandas.DataFrame(study.runs)
    runs = summary[summary["arm"] == rope]
    target = float(dict(zip(*study.tables["facts"].values(), strict=True))["target_loss_0.75"])
    assert study.tokens_to(rope, target) == dict(zip(runs["seed"], runs["tokens_to_target"], strict=True))
    assert set(study.tokens_to(rope, 0.0).values()) == {None}
    arms = pandas.DataFrame(study.tables["arms"]).set_index("arm")
    assert study.time_ratio(alibi, rope).mean == arms["tokens_to_target_ratio"][alibi]
