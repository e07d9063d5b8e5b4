"""The tables of arms, comparisons, protocols and runs."""

from collections.abc import Mapping
from dataclasses import replace

from poslab.analysis.comparisons import mean_ranks
from poslab.analysis.protocols import OTHER, counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.sheets import (
    Row,
    arms_sheet,
    claims_sheet,
    differences_sheet,
    interactions_sheet,
    pairs_sheet,
    sheet,
    summary_sheet,
)
from poslab.config.text import plain, rate_text
from poslab.record.measures import is_in_bits, name
from poslab.record.reader import Run
from poslab.record.summary import is_pretrained
from poslab.report import cells
from poslab.report.charts import Track, TrackChart
from poslab.report.document import Section
from poslab.report.formatting import DASH, duration, multiple, number, quantity, web_link
from poslab.report.sections.answer import lead
from poslab.report.tables import Cell, Column, Table

FARTHER = (2, 4, 8)  # multiples of L in the terminal's table
SHARES = (1 / 16, 1 / 4, 1)  # shares of a longer tested length, to use in place of FARTHER
LED_BY = "arm", "name", "task"  # columns of `lead` that the terminal's table replaces or has no room for


def arms(results: Results) -> Section:
    """Return the table of arms."""
    sheets = {"pairs": pairs_sheet(results), "claims": claims_sheet(results), "arms": arms_sheet(results)}
    tables = (arms_table(results),) if results.has_losses else ()
    return Section("arms", "Every figure by arm", tables=tables, sheets=sheets)


def arms_table(results: Results) -> Table:
    """Return one row per arm with rank, losses by length, gains, usable lengths and tokens to target."""
    columns = [
        cells.arm_column(results),
        Column("seeds_finished", "Seeds", cells.seeds),
        *([Column("rank", "Rank", cells.rank)] if results.ranks else []),
    ]
    protocol = cells.loss_family(results)
    columns += [cells.loss_column(protocol, k) for k in cells.scored(results, protocol)]
    # Context gain and early-token curse, only at the longest length past L.
    columns += [
        Column(f"{family}_{name(k)}", f"{title} at {multiple(k)}", cells.nats, "Nats")
        for family, title in cells.GAINS.items()
        if (k := max(cells.scored(results, family), default=1)) > 1
    ]
    unit = "multiples of L" if results.context_length is None else "tokens"
    slid = cells.scored(results, "sliding")  # empty if tokens see later tokens
    columns += [
        Column(key, title, cells.usable, f"Usable length, {unit}")
        for key, title in zip(cells.usable_keys(results), ("Own loss", "Fixed loss"), strict=True)
        if slid
    ]
    trained = not all(map(is_pretrained, results.finished))
    columns += [
        Column("tokens_to_target", "Mean", cells.to_target, "Tokens to target"),
        Column("tokens_to_target_ratio", "Over reference", cells.over_reference, "Tokens to target"),
    ] * trained
    how = "p < 0.05 in a paired t test, with Holm's correction over all claims of the verdict, listed in "
    ranked = cells.rank_words(results, f"{how}claims.csv")
    of_sliding = (
        f"; the loss in {cells.WINDOWS[OTHER[protocol]]} is in the table of protocols. Context gain is the "
        "sliding-window loss at L minus that at the longer length. Early-token curse is the loss that tokens "
        "near a window's start add in non-overlapping windows. Usable length is the longest tested length up "
        "to which the sliding-window loss stays within 5 % of its value at L (own loss), or within a limit "
        f"shared by all arms (fixed loss): {cells.fixed_limit(results)}"
    )
    taken = f"Loss is taken in {cells.WINDOWS[protocol]}{of_sliding if slid else ''}. "
    to_target = (
        f"Tokens to target are the training tokens until the loss of {results.reference.arm.label} at 75 % "
        "of its budget; over reference is their ratio to the reference's, as a geometric mean over shared "
        "seeds. If the budget may cut off a further seed, the interval is the 98 % prediction interval of "
        "one more seed. If the budget cut off runs, the ratio is a bound (>, <)."
    )
    caption = f"{ranked}{taken if cells.scored(results, protocol) else ''}{to_target if trained else ''}"
    return Table(
        "Every figure by arm", caption.strip(), tuple(columns), arms_sheet(results)[1], ("arms.csv",)
    )


def terminal_table(results: Results, looks: Mapping[str, int]) -> Table:
    """Return one row per arm for the terminal, in the colour of the arm's number in `looks`.

    Losses are in the tested protocol and unit. Both usable lengths are in one cell, the fixed one below,
    since a terminal has no room for two columns.
    """
    if (led := lead(results)) is not None:
        arm = next(column for column in led[1].columns if column.key == "name")
        rest = [column for column in led[1].columns if column.key not in LED_BY]
        return replace(led[1], columns=(_with_text(arm), *rest))

    def usable(row: Row, key: str) -> Cell:
        return Cell("\n".join(cells.usable(row, key).text for key in cells.usable_keys(results)))

    protocol = cells.loss_family(results)
    loss = "bits per byte" if is_in_bits(results.primary) else "loss"
    loss = f"sliding {loss}" if protocol.startswith("sliding") else loss
    tested = results.tested_multiple
    farther = FARTHER if tested <= FARTHER[-1] else [share * tested for share in SHARES]
    lengths = (1.0, *(k for k in cells.scored(results, protocol) if k > 1 and k in farther))
    slid, trained = cells.scored(results, "sliding"), not all(map(is_pretrained, results.finished))
    seeds = Column("seeds_finished", "seeds", cells.seeds)
    columns = (
        _with_text(cells.named(looks)),
        Column("seed", "seed", cells.text) if results.seeds < 2 else seeds,
        *(
            Column(f"{protocol}_{name(k)}", f"{loss} at L" if k == 1 else multiple(k), cells.loss)
            for k in lengths
        ),
        *([Column("usable", "usable: own, fixed", usable)] if slid else []),
        *([Column("tokens_to_target", "to target", cells.to_target)] if trained else []),
    )
    rows = zip(results.arms, arms_sheet(results)[1], strict=True)
    records = [{**row, "seed": item.rows[0]["seed"] if item.rows else None} for item, row in rows]
    return Table("Arms", "", columns, records, ("arms.csv",))


def _with_text(arm: Column) -> Column:
    """Return the column of arms, each with its text if there are several."""

    def scheme(row: Row, key: str) -> Cell:
        cell = arm.show(row, arm.key)
        return replace(cell, text=f"{cell.text} {row['text']}".rstrip())

    return Column("scheme", "scheme", scheme, number=False)


def differences(results: Results) -> Section:
    """Return the differences from the reference, or only their CSV file if no arm has two seeds."""
    table = differences_table(results)
    sheets = {"differences": differences_sheet(results)}
    tables = [] if table is None or results.rungs is not None else [table]  # a ladder has its own
    if table is not None and results.interactions:
        sheets["interactions"] = interactions_sheet(results)
        tables.append(_interactions_table(results))
    charts = tuple(rank_chart(results))
    return Section("differences", "Against the reference", charts=charts, tables=tuple(tables), sheets=sheets)


def _interactions_table(results: Results) -> Table:
    """Return how much each difference between schemes depends on the other settings that vary."""
    reference = results.reference.arm.label
    columns = (
        cells.arm_column(results),
        cells.words("against", "minus"),
        Column("change_n", "Seeds", cells.text),
        Column("with_own", "Difference", cells.nats),
        Column("with_reference", f"With the settings of {reference}", cells.nats),
        Column("change", "Change", cells.nats),
    )
    documents = results.interactions[0].change.documents
    sure = "seeds" if documents is None else f"seeds and {documents} {results.called_documents}"
    caption = (
        f"For the {cells.figure_words(results.primary or '')}: the difference between two schemes, the same "
        f"difference with the other settings of {reference}, and the change (the first minus the second), "
        f"with 95 % intervals over {sure}. If the interval of the change includes 0, no dependence on these "
        "settings was seen. Not tested."
    )
    rows = interactions_sheet(results)[1]
    title = "Does a difference depend on the other settings?"
    return Table(title, caption, columns, rows, ("interactions.csv",), folded=True)


def rank_chart(results: Results) -> list[TrackChart]:
    """Return the ranks of three or more arms in the tested loss; an empty list with one seed."""
    if results.primary is None or len(results.ranks) < 3:
        return []
    looks = cells.looks(results)
    ranked = [item for item in results.arms if item.arm.label in results.ranks]
    means = mean_ranks(ranked, results.primary)
    places = [
        (label, mean, results.ranks[label].best, results.ranks[label].worst) for label, mean in means.items()
    ]
    places.sort(key=lambda place: place[1:3])
    caption = (
        f"By the {cells.figure_words(results.primary)}: the dot is an arm's mean rank over shared seeds, and "
        "the bar spans the ranks that the tests allow. Arms with overlapping bars may change places."
    )
    tracks = tuple(
        Track(
            looks[label],
            label,
            (("75", mean),),
            (Cell(f"{mean:.3g}", mean), Cell(cells.span([best, worst], "–"), best)),
            (best - 0.3, worst + 0.3),
        )
        for label, mean, best, worst in places
    )
    chart = TrackChart(
        "ranks",
        "Ranks",
        caption,
        "Rank (bar: the ranks that the tests allow)",
        (0.5, len(places) + 0.5),
        ("first", "last"),
        (("Mean rank", ""), ("Places", "")),
        tracks,
        [dict(zip(("arm", "rank_mean", "rank_best", "rank_worst"), place, strict=True)) for place in places],
    )
    return [chart] if places else []


def differences_table(results: Results) -> Table | None:
    """Return the differences from the reference over shared seeds, or None with one seed."""
    last = max(cells.scored(results, "sliding"), default=1.0)
    first = [] if results.primary is None else [results.primary, counterpart(results.primary)]
    listed = {*first, f"sliding_{name(last)}", f"context_gain_{name(last)}"}
    listed |= {loss_at_length(results.reference, results.primary)}
    listed -= {"context_gain_1x"}  # 0 for every arm
    compared = [row for row in differences_sheet(results)[1] if row["half_width"] is not None]
    if not compared or results.seeds < 2:
        return None
    order = {figure: place for place, figure in enumerate(first)}  # the tested figure comes first
    compared.sort(key=lambda row: order.get(str(row["figure"]), len(order)))
    columns = (
        cells.arm_column(results),
        cells.figure_column(),
        Column("n", "Seeds", cells.text),
        Column("mean", "Difference", cells.difference),
        Column("seed_deviations", "in seed SD", cells.significant(2)),
        Column("text_standard_error", "SE over text", cells.significant(3)),
        Column("p_holm", "p (Holm)", cells.probability),
        cells.words("reading", "Reading"),
    )
    caption = (
        f"Arm minus {results.reference.arm.label}, in nats per token (or bits per byte, by the figure), "
        f"paired by seed, with 95 % Student-t intervals. {_tested(results)}"
    )
    records = [row for row in compared if row["figure"] in listed]
    return Table("Against the reference", caption, columns, records, ("differences.csv",), folded=True)


def _tested(results: Results) -> str:
    """Return which differences are tested, and which noise the intervals cover."""
    if (primary := results.primary) is None:
        return "Nothing is tested."
    untested = counterpart(primary)
    example = f", as in the {cells.figure_words(untested)}," if untested in results.reference.figures else ""
    tested = (
        f"{cells.figure_title(primary)} is tested. Each p has Holm's correction over all claims of the "
        f"verdict; differences without a p{example} are descriptive."
    )
    if documents := results.documents:
        return (
            f"{tested} Intervals are over seeds and {cells.span(documents)} {results.called_documents}; the "
            f"standard error (SE) over text is what the {results.called_documents} add to them."
        )
    return (
        f"{tested} Intervals are over seeds; the standard error (SE) is over segments of the held-out text, "
        "and is too small if several segments come from one document."
    )


def protocols(results: Results) -> Section | None:
    """Return one row per arm with bits per byte in both protocols, untested loss and early-token curse.

    Return None if no text was scored.
    """
    untested = [OTHER[cells.loss_family(results)]]
    if is_in_bits(results.primary):
        untested = list(cells.LOSSES)
    families: tuple[tuple[str, str, cells.Show], ...] = (
        ("bits_per_byte", "Bits per byte, non-overlapping", cells.loss),
        ("sliding_bits_per_byte", "Bits per byte, sliding", cells.loss),
        *((family, cells.LOSSES[family], cells.loss) for family in untested),
        ("early_token_curse", "Early-token curse, nats", cells.nats),
    )
    columns = [cells.arm_column(results)]
    columns += [
        Column(f"{family}_{name(k)}", multiple(k), show, group)
        for family, group, show in families
        for k in cells.scored(results, family)
    ]
    if len(columns) == 1:
        return None
    slid = cells.scored(results, "sliding")
    caption = (
        "Sliding windows score each target with a long context, on part of the text. The early-token curse "
        "is the loss that tokens near a window's start add in non-overlapping windows, on the same text."
    )
    title = "Both protocols, and bits per byte" if slid else "Bits per byte"
    caption = caption if slid else "Per byte of the text of the scored tokens."
    table = Table(title, caption, tuple(columns), arms_sheet(results)[1], ("arms.csv",), folded=True)
    return Section("protocols", title, tables=(table,))


def runs(results: Results) -> Section:
    """Return every record of the study, finished or not."""
    return Section("runs", "Runs", tables=(runs_table(results),), sheets={"summary": summary_sheet(results)})


def earlier(results: Results) -> Section | None:
    """Return the runs of earlier commands, in the default study of commands that name no study."""
    if not results.earlier:
        return None
    protocol = cells.nats_family(results)
    columns = [
        cells.words("arm", "Arm"),
        Column("seed", "Seed", cells.text),
        cells.words("status", "Status"),
        *(
            Column(f"{protocol}_{name(k)}", multiple(k), cells.rounded(number), cells.LOSSES[protocol])
            for k in (1.0, *(k for k in cells.scored(results, protocol) if k == FARTHER[-1]))
        ),
    ]
    caption = (
        "Runs of earlier commands in the same folder, which no figure above includes; losses in nats per "
        "token. To compare them too, repeat both commands with study=NAME: no run is trained again."
    )
    table = Table("Earlier runs", caption, tuple(columns), results.earlier, ("earlier.csv",), folded=True)
    return Section("earlier", "Earlier runs", tables=(table,), sheets={"earlier": sheet(results.earlier)})


def runs_table(results: Results) -> Table:
    places = {run.name: item.arm.look for item in results.arms for run in item.arm.runs}
    by_name = {run.name: run for run in results.runs}

    def of_arm(row: Row, key: str) -> Cell:
        run = by_name[str(row["name"])]
        if not run.tunes:
            return Cell(cells.text(row, key).text, arm=places.get(run.name))
        rate = "" if run.learning_rate is None else f" at {rate_text(run.learning_rate)}"
        return Cell(f"{cells.text(row, 'tuning_of').text} (tuning{rate})", arm=places.get(run.name))

    columns = (
        Column("name", "Run", lambda row, key: Cell(plain(row[key], 160)), number=False),
        Column("arm", "Arm", of_arm, number=False),
        cells.words("attention", "Attention"),
        Column("seed", "Seed", cells.text),
        cells.words("status", "Status"),
        Column("parameters", "Parameters", cells.rounded(quantity)),
        Column("tokens", "Tokens", cells.rounded(quantity)),
        Column("flops", "FLOPs", cells.rounded(quantity)),
        Column("seconds", "Time", cells.rounded(duration)),
        Column("tokens_per_second", "Tokens/s", cells.rounded(quantity)),
        cells.words("kernel", "Kernel"),
        cells.words("device", "Device"),
        Column("name", "W&B", lambda row, key: _tracked(by_name[str(row[key])]), number=False),
        cells.words("reason", "Reason"),
    )
    caption = "Every record of the study. The figures above include only runs with status done."
    records = [{**row, "name": run.name} for run, row in zip(results.runs, results.rows, strict=True)]
    return Table("Runs", caption, columns, records, ("summary.csv",), folded=True, in_markdown=False)


def _tracked(run: Run) -> Cell:
    place = run.manifest.wandb
    if place is None:
        return Cell(DASH)
    link = web_link(place.url)
    return Cell("open" if link else plain(place.mode or DASH, 20), link=link)
