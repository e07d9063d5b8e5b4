"""The tables as a reader wants them, for the page, Markdown and the terminal; sheets.py has them in full."""

from collections.abc import Mapping
from dataclasses import dataclass

from poslab.config.text import plain, rate_text
from poslab.record.measures import Value, name
from poslab.record.reader import Run
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.cells import figure_title, mean_cell, over_reference, rank
from poslab.report.formatting import DASH, count, duration, interval, multiple, number, quantity, web_link

SMALLEST_P = 0.001


@dataclass(frozen=True)
class Column:
    title: str
    group: str = ""  # a heading that neighbouring columns share
    number: bool = True


@dataclass(frozen=True)
class Cell:
    text: str
    link: str | None = None
    arm: int | None = None  # the arm whose colour goes with it


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str  # the CSV with the same figures in full
    grouped: bool = False  # whether rows with the same first cell are shown under it
    by_run: str | None = None  # the CSV with these figures run by run

    @property
    def sources(self) -> tuple[str, ...]:
        """The CSV files with these figures."""
        return (self.source,) if self.by_run is None else (self.source, self.by_run)


def arms_table(results: Results) -> Table:
    """A row an arm: rank, losses by length, what context is worth, usable length, tokens to target."""
    shown = _scored(results, "loss")
    # What is made of both protocols stands at the longest length past L alone.
    made = {"context_gain": "Context gain", "early_token_curse": "Early-token curse"}
    longest = [(family, k) for family in made if (k := max(_scored(results, family), default=1)) > 1]
    columns = [Column("Arm", number=False), Column("Seeds"), Column("Rank")]
    columns += [Column(multiple(k), "Loss, nats per token") for k in shown]
    columns += [Column(f"{made[family]} at {multiple(k)}", "Nats") for family, k in longest]
    columns += [Column("Usable length", "Multiples of L" if results.context_length is None else "Tokens")]
    columns += [Column(title, "Tokens to target") for title in ("Mean", "Over reference")]
    rows = []
    for i, item in enumerate(results.arms):
        cells = [Cell(item.arm.label, arm=i), Cell(_seeds(item)), Cell(rank(item, results))]
        cells += [Cell(estimated(item, f"loss_{name(k)}")) for k in shown]
        cells += [Cell(estimated(item, f"{family}_{name(k)}", 3, sign=True)) for family, k in longest]
        cells += [Cell(usable(item, results)), Cell(to_target(item))]
        cells.append(Cell("reference" if item is results.reference else over_reference(item)))
        rows.append(tuple(cells))
    return Table("arms", "Arms", _arms_caption(results), tuple(columns), tuple(rows), "arms.csv")


def _arms_caption(results: Results) -> str:
    ranked = (
        ""
        if results.primary is None
        else f"The rank is by {figure_title(results.primary)}: only arms that are separated bound it "
        "(p < 0.05 of the paired t test, with Holm's correction over all pairs; pairs.csv). "
    )
    return (
        f"{ranked}Loss is taken in non-overlapping windows. Context gain is the sliding-window loss at L "
        "less that at the longer length: what the added context is worth. The early-token curse is what "
        "non-overlapping windows lose to tokens near a window's start. Usable length is the longest tested "
        "up to which the sliding-window loss stays within 5 % of its value at L. Tokens to target: until the "
        f"loss that {results.reference.arm.label} has at 75 % of its budget; over the reference: the "
        "geometric mean over shared seeds. Where runs were cut off before they got there, it is a bound "
        "(>, <), made with the time that they certainly took."
    )


def protocols_table(results: Results) -> Table:
    """A row an arm: bits per byte in both protocols, and the early-token curse."""
    families = (
        ("bits_per_byte", "Bits per byte, non-overlapping", 4, False),
        ("sliding_bits_per_byte", "Bits per byte, sliding", 4, False),
        ("sliding", "Loss, sliding", 4, False),
        ("early_token_curse", "Early-token curse, nats", 3, True),
    )
    chosen = [(family, k) for family in families for k in _scored(results, family[0])]
    columns = (Column("Arm", number=False), *(Column(multiple(k), family[1]) for family, k in chosen))
    rows = tuple(
        (
            Cell(item.arm.label, arm=i),
            *(Cell(estimated(item, f"{f[0]}_{name(k)}", f[2], sign=f[3])) for f, k in chosen),
        )
        for i, item in enumerate(results.arms)
    )
    caption = (
        "Sliding windows score every token with a long context, on part of the text. The early-token curse "
        "is what non-overlapping windows lose to tokens near a window's start, on the text that both score."
    )
    return Table("protocols", "Protocols", caption, columns, rows, "arms.csv")


def comparisons_table(results: Results) -> Table | None:
    """Differences from the reference over shared seeds, or None with one seed."""
    found = [item for item in results.comparisons if item.difference.half_width is not None]
    if not found or results.seeds < 2:
        return None
    columns = (
        Column("Arm", number=False),
        Column("Figure", number=False),
        Column("Seeds"),
        Column("Difference"),
        Column("in seed SD"),
        Column("p (Holm)"),
        Column("Reading", number=False),
    )
    numbers = {item.arm.label: i for i, item in enumerate(results.arms)}
    shown = {
        results.primary,
        *(f"{family}_{name(_last(results))}" for family in ("sliding", "context_gain")),
        "loss_1x",
    }
    found.sort(key=lambda item: item.figure != results.primary)  # what is tested comes first
    rows = tuple(
        (
            Cell(item.arm.label, arm=numbers[item.arm.label]),
            Cell(figure_title(item.figure)),
            Cell(str(item.difference.n)),
            Cell(interval(item.difference.mean, item.difference.half_width, 3, sign=True)),
            Cell(number(item.difference.deviations, 2)),
            Cell(_probability(item.p_holm)),
            Cell(item.reading),
        )
        for item in found
        if item.figure in shown
    )
    tested = (
        ""
        if results.primary is None
        else f"{figure_title(results.primary)} is the primary figure: it alone is"
    )
    caption = (
        f"Arm less {results.reference.arm.label}, in nats per token, paired by seed, with 95 % Student-t "
        f"intervals. {tested} tested, with Holm's correction over the arms; the rest is descriptive."
    )
    return Table("differences", "Against the reference", caption, columns, rows, "differences.csv")


def runs_table(results: Results) -> Table:
    """Every record of the study, whatever became of it."""
    numbers = {run.name: i for i, item in enumerate(results.arms) for run in item.arm.runs}
    titles = ["Parameters", "Tokens", "FLOPs", "Time", "Tokens/s"]
    columns = [Column("Run", number=False), Column("Arm", number=False)]
    columns += [Column("Attention", number=False), Column("Seed"), Column("Status", number=False)]
    columns += [Column(title) for title in titles]
    columns += [Column(title, number=False) for title in ("Kernel", "Device", "W&B", "Reason")]
    rows = []
    for run, row in zip(results.runs, results.rows, strict=True):
        cells = [Cell(plain(run.name, 160)), Cell(_arm(run, row), arm=numbers.get(run.name))]
        cells += [Cell(_text(row.get("attention"))), Cell(_text(row.get("seed"))), Cell(_text(row["status"]))]
        cells += [
            Cell(quantity(_float(row, "parameters"))),
            Cell(quantity(_float(row, "tokens"))),
            Cell(quantity(_float(row, "flops"))),
            Cell(duration(_float(row, "seconds"))),
            Cell(quantity(_float(row, "tokens_per_second"))),
            Cell(_text(row.get("kernel"))),
            Cell(_text(row.get("device"))),
            _tracked(run),
            Cell(_text(row["reason"])),
        ]
        rows.append(tuple(cells))
    caption = "Every record of the study. Only runs that are done count in the figures above."
    if results.tunings:
        caption += " Those that tune a learning rate count in nothing but that."
    return Table("runs", "Runs", caption, tuple(columns), tuple(rows), "summary.csv")


def _arm(run: Run, row: Mapping[str, Value]) -> str:
    if not run.tunes:
        return _text(row.get("arm"))
    rate = "" if run.learning_rate is None else f" at {rate_text(run.learning_rate)}"
    return f"{_text(row.get('tuning_of'))} (tuning{rate})"


def terminal_rows(results: Results) -> list[dict[str, str]]:
    """A row an arm for the terminal, by column title; losses are nats a token."""
    single = all(len(item.rows) <= 1 for item in results.arms)
    rows = []
    for item in results.arms:
        scheme = item.arm.label.replace(f" / {item.arm.attention}", "", 1)
        row = {"scheme": scheme, "attention": item.arm.attention}
        if single:
            row["seed"] = _text(item.rows[0]["seed"]) if item.rows else DASH
        else:
            row["seeds"] = _seeds(item)
        for k in (1.0, 2.0, 4.0, 8.0):
            row["loss at L" if k == 1 else multiple(k)] = estimated(item, f"loss_{name(k)}")
        row["usable"] = usable(item, results)
        row["to target"] = to_target(item)
        rows.append(row)
    return rows


def usable(item: ArmFigures, results: Results) -> str:
    """The usable length over the seeds: one, or the range where they differ; "≥" where the longest passes."""
    unit = "usable_length_multiple" if results.context_length is None else "usable_length"
    lengths = sorted(
        {
            (value, row["usable_length_at_least"] is True)
            for row in item.rows
            if isinstance(value := row.get(unit), int | float)
        }
    )
    unit_of = multiple if results.context_length is None else count
    shown = [f"{'≥ ' if at_least else ''}{unit_of(value)}" if value else "< L" for value, at_least in lengths]
    return DASH if not shown else shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def to_target(item: ArmFigures, suffix: str = "") -> str:
    """Mean tokens to target; where a run did not get there, how many did instead."""
    if suffix not in item.reached:
        return DASH
    hits, n = item.reached[suffix]
    found = item.figures.get(f"tokens_to_target{suffix}")
    if found is not None:
        half = "" if found.half_width is None else f" ± {quantity(found.half_width)}"
        return f"{quantity(found.mean)}{half}"
    return "> budget" if hits == 0 else f"{hits} of {n} reached"


def _seeds(item: ArmFigures) -> str:
    n = len(item.rows)
    return str(n) if n == item.arm.asked else f"{n} of {item.arm.asked}"


def estimated(item: ArmFigures, figure: str, digits: int = 4, sign: bool = False) -> str:
    """The mean with its interval, and of how many seeds where not all of them have it."""
    return mean_cell(item.figures.get(figure), item, digits, sign)


def _scored(results: Results, family: str) -> list[float]:
    return [
        k for k in results.multiples if any(f"{family}_{name(k)}" in item.figures for item in results.arms)
    ]


def _last(results: Results) -> float:
    return max((k for k in _scored(results, "sliding")), default=1.0)


def _probability(p: float | None) -> str:
    return f"< {SMALLEST_P:g}" if p is not None and p < SMALLEST_P else number(p, 2)


def _tracked(run: Run) -> Cell:
    place = run.manifest.wandb
    if place is None:
        return Cell(DASH)
    link = web_link(place.url)
    return Cell("open" if link else plain(place.mode or DASH, 20), link)


def _float(row: Mapping[str, Value], key: str) -> float | None:
    value = row.get(key)
    return value if isinstance(value, int | float) else None


def _text(value: Value) -> str:
    return DASH if value is None or value == "" else str(value)
