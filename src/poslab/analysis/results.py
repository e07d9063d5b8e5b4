"""The figures of a report, for runs and for arms. Tables, charts and pages only show them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from poslab.analysis.arms import Arm, arms, choose_reference, text_of
from poslab.analysis.claims import Claim, claims
from poslab.analysis.comparisons import (
    Comparison,
    Rank,
    comparable,
    compare,
    pairs,
    ranks,
    same_text,
    scored_by,
)
from poslab.analysis.estimates import FIXED, TARGETS, ArmFigures, arm_figures, fixed_limit
from poslab.analysis.interactions import Interaction, interactions
from poslab.analysis.ladder import Ladder, rungs_of
from poslab.analysis.learning_rates import Tuning, tunings
from poslab.analysis.protocols import both_protocols, choose_primary, loss_at_length
from poslab.analysis.rescalings import Lines, rescaled_arms
from poslab.analysis.statistics import grouped
from poslab.config.text import plain
from poslab.measures import figures as measured_figures
from poslab.measures import joined
from poslab.record import measures
from poslab.record.archive import load_available
from poslab.record.measures import Value
from poslab.record.reader import Records, ReportError, Run
from poslab.record.summary import Target, row


@dataclass(frozen=True)
class Subject:
    """The subject of a report: its name and its option on the command line."""

    name: str
    option: str  # study=a,b


@dataclass(frozen=True)
class Results:
    """The figures of one or several studies: a row for each run, and estimates of arms over seeds."""

    studies: tuple[str, ...]
    questions: tuple[str, ...]
    commands: tuple[str, ...]
    runs: tuple[Run, ...]
    rows: tuple[Mapping[str, Value], ...]  # one per run, in the order of `runs`
    arms: tuple[ArmFigures, ...]
    reference: ArmFigures
    reference_warning: str | None
    multiples: tuple[float, ...]
    targets: tuple[Target, ...]
    aulc_interval: tuple[int, int] | None
    primary: str | None  # the tested figure, such as sliding_8x
    comparisons: tuple[Comparison, ...]
    pairs: tuple[Comparison, ...]  # pairs of arms on the primary figure, with the other protocol beside it
    rungs: Ladder | None  # for a study of several sizes or budgets
    interactions: tuple[Interaction, ...]  # of schemes and other settings, on the primary figure
    claims: tuple[Claim, ...]  # the tests behind the verdict, corrected together
    ranks: Mapping[str, Rank]  # by the arm's label; empty with one seed or several sizes or budgets
    fixed_limit: float | None  # nats per token: the highest loss that usable_length_fixed counts as usable
    rescaled: tuple[tuple[ArmFigures, Lines], ...]  # the arms that were also measured under other rotations
    tunings: tuple[Tuning, ...]  # how the learning rates were chosen, if they were tuned
    earlier: tuple[Mapping[str, Value], ...]  # rows of runs of earlier commands, which count in no figure
    subject: Subject
    texts: "tuple[Results, ...]" = ()  # the same results text by text, if the study has several; else empty

    @property
    def study(self) -> str:
        """The name of the report's subject: of the study, of all studies, or of a selection of runs."""
        return self.subject.name

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for item in self.arms for run in item.arm.finished)

    @property
    def compared(self) -> tuple[Run, ...]:
        """All runs except those that tune learning rates, however they ended."""
        return tuple(run for run in self.runs if not run.tunes)

    @property
    def context_length(self) -> int | None:
        """The training length L that all arms share, or None if they differ."""
        lengths = {item.arm.context_length for item in self.arms}
        return lengths.pop() if len(lengths) == 1 else None

    @property
    def differing(self) -> list[str]:
        """The configuration keys in which the arms differ."""
        return list(self.arms[0].arm.differing)

    @property
    def beside_reference(self) -> list[ArmFigures]:
        """The reference and the arms of its size and budget; all arms of a study with one size and budget."""
        if self.rungs is None:
            return [*self.arms]
        groups = ([*rung.arms.values()] for rung in self.rungs.rungs)
        return next((group for group in groups if self.reference in group), [self.reference])

    @property
    def one_text(self) -> bool:
        """Whether all finished runs read the reference's text, whatever the tokenizer."""
        return all(same_text(run, self.first) for run in self.finished)

    @property
    def first(self) -> Run:
        """The run that represents the study: the reference's first finished run, else any arm's first."""
        return (self.reference.arm.finished or self.finished)[0]

    @property
    def one_objective(self) -> bool:
        """Whether all finished runs have losses of the same objective or task."""
        return len({scored_by(run) for run in self.finished}) <= 1

    @property
    def has_losses(self) -> bool:
        """Whether the report has losses: not for several tasks, since their losses do not compare."""
        return self.one_objective or any(run.has_text for run in self.finished)

    @property
    def text(self) -> str:
        """The name of the reference's text."""
        return plain(self.first.data_name, 40)

    @property
    def is_about_learning(self) -> bool:
        """Whether the loss at L is the tested one, and runs have validation losses from training."""
        at_length = self.primary is not None and self.tested_multiple == 1
        return at_length and any(run.validations for run in self.finished)

    @property
    def tested_multiple(self) -> float:
        """The length of the tested loss, in multiples of L; 1 if nothing is tested."""
        return 1.0 if self.primary is None else measures.multiple(self.primary)

    @property
    def tested(self) -> tuple[Comparison, ...]:
        """The comparisons with the reference on the primary figure."""
        return tuple(item for item in self.comparisons if item.figure == self.primary)

    @property
    def documents(self) -> list[int]:
        """The numbers of documents behind the noise in tested intervals; empty if an interval has none."""
        at_length = loss_at_length(self.reference, self.primary)
        tested = self.pairs or [item for item in self.comparisons if item.figure == at_length]
        counts = {pair.difference.documents for pair in tested}
        return sorted(count for count in counts if count) if None not in counts else []

    @property
    def called_documents(self) -> str:
        """The independent draws of held-out text in words: documents, or groups of joined documents."""
        options = (run.config.get("evaluate") or {} for run in self.finished)
        together = any(section.get("documents") == "joined" for section in options)
        return "groups of joined documents" if together else "documents"

    @property
    def leading(self) -> list[str]:
        """The arms below which no other arm is separated on the primary figure, the lowest mean first.

        Means are over the seeds that all of these arms share, or over each arm's own if they share none.
        """
        first = [label for label, rank in self.ranks.items() if rank.best == 1]
        losses = {
            item.arm.label: item.by_seed(self.primary or "") for item in self.arms if item.arm.label in first
        }
        shared = set.intersection(*map(set, losses.values())) if losses else set()

        def mean(label: str) -> float:
            return fmean(losses[label][seed] for seed in shared or losses[label])

        return sorted(first, key=mean)

    @property
    def seeds(self) -> int:
        """The largest number of finished seeds of any arm."""
        return max(len(item.rows) for item in self.arms)

    @property
    def fewest_seeds(self) -> int:
        """The smallest number of seeds behind a tested difference; if none is tested, `seeds`."""
        pairs = [pair.difference.n for pair in self.pairs]
        return min(pairs, default=self.seeds)


def gather(study: str, runs: Path, reference: str | None, primary: str | None = None) -> Results:
    """Return all figures of a study, or of several studies with commas between their names.

    `reference` and `primary` (sliding_8x, loss_8x, ...) override those of the (first) study. Raise
    ReportError if there is nothing to report, no such reference or no such figure.
    """
    return figures(load_available(study, runs, None), subject_of(study), reference, primary)


def subject_of(study: str) -> Subject:
    """Return the subject for a study, or for several with commas between their names."""
    return Subject(study.replace(",", "+"), f"study={study}")


def figures(
    records: tuple[Records, ...], subject: Subject, reference: str | None, primary: str | None = None
) -> Results:
    """Return all figures of these records, and also text by text if they cover several texts.

    Raise ReportError as `gather` does.
    """
    listed, every_arm = arms(records)
    finished = {run.study for run in listed if run.status == "done" and not run.tunes}
    for record in records:
        if record.study not in finished:
            raise ReportError(_no_runs(record))
    against, warning = choose_reference(every_arm, records, reference)
    texts = _texts(records, every_arm, against)
    families = max(1, len(texts))
    whole = _figures(records, (listed, every_arm), against, subject, primary, families)
    by_text = []
    for part, runs_and_arms, base in texts:
        planned = tuple(replace(record, primary=whole.primary) for record in part)
        by_text.append(_figures(planned, runs_and_arms, base, subject, None, families))
    return replace(whole, reference_warning=warning, texts=tuple(by_text))


RunsAndArms = tuple[tuple[Run, ...], tuple[Arm, ...]]


def _texts(
    records: tuple[Records, ...], every_arm: tuple[Arm, ...], reference: Arm
) -> list[tuple[tuple[Records, ...], RunsAndArms, Arm]]:
    """Return each text's records, its runs and arms, and its reference, which is `reference` on that text.

    Only texts with a finished reference and another finished arm count; empty if only one text has these.
    """
    runs = (run for record in records for run in record.runs if run.readable and run.has_text)
    names = dict.fromkeys(map(text_of, runs))
    labels = {run.name: arm.on_its_text for arm in every_arm for run in arm.runs}
    texts = []
    for name in names if len(names) > 1 else ():
        narrowed = (
            replace(record, runs=tuple(run for run in record.runs if run.readable and text_of(run) == name))
            for record in records
        )
        part = tuple(replace(record, earlier=()) for record in narrowed if record.runs)
        listed, part_arms = arms(part)
        named = tuple(replace(arm, label=labels[arm.runs[0].name]) for arm in part_arms)
        if len({arm.label for arm in named}) == len(named):  # not so if files with one name differ in content
            part_arms = named
        finished = {arm.label: arm for arm in part_arms if arm.finished}
        if reference.on_its_text in finished and len(finished) > 1:
            texts.append((part, (listed, part_arms), finished[reference.on_its_text]))
    return texts if len(texts) > 1 else []


def _figures(
    records: tuple[Records, ...],
    runs_and_arms: RunsAndArms,
    against: Arm,
    subject: Subject,
    primary: str | None,
    families: int,
) -> Results:
    """Return all figures of these records against one arm, as one of `families` families of tests."""
    listed, every_arm = runs_and_arms
    finished = [run for run in listed if run.status == "done" and not run.tunes]
    multiples = measures.multiples(finished)
    targets = _targets(against)
    same_data = {
        run.name for run in listed if run.status in ("done", "diverged") and comparable(run, against)
    }
    interval = measures.common_interval(run for run in finished if run.validations)
    tuned = tunings(listed, every_arm)
    label_of = {run.name: arm.label for arm in every_arm for run in arm.runs}
    label_of |= {run.name: tuning.label for tuning in reversed(tuned) for run in tuning.runs}
    rows = {
        run.name: row(
            run, label_of.get(run.name), multiples, targets if run.name in same_data else (), interval
        )
        for run in listed
    }
    for name, measured in measured_figures(finished).items():
        rows[name] = joined(rows[name], measured)
    limit = fixed_limit(rows[run.name] for run in against.finished)
    for run in finished:
        rows[run.name] |= measures.usable_up_to(run, limit if run.name in same_data else None, FIXED)
    base = arm_figures(against, rows, multiples, targets, same_data, None)
    all_figures = tuple(
        base if arm is against else arm_figures(arm, rows, multiples, targets, same_data, base)
        for arm in every_arm
    )
    figure = choose_primary(all_figures, base, multiples, records[0].primary, primary)
    if not base.rows:  # without a finished run of the reference, it is unknown which losses compare
        figure = None
    compared = compare(all_figures, base, figure, multiples)
    groups = [(all_figures, base)]  # groups of arms that are tested against one another, and their references
    if (rungs := rungs_of(all_figures, base, figure)) is not None:  # groups of one size and budget
        groups = [(tuple(rung.arms.values()), rung.arms[rung.reference]) for rung in rungs.rungs]
    between = tuple(pair for group, base_of_group in groups for pair in pairs(group, base_of_group, figure))
    tests, compared, between = claims(
        all_figures, base, figure, compared, between, multiples, families, groups
    )
    commands = dict.fromkeys(plain(line, 1000) for record in records for line in record.commands)
    return Results(
        studies=tuple(record.study for record in records),
        questions=tuple(dict.fromkeys(plain(record.question, 500) for record in records if record.question)),
        commands=tuple(commands),
        runs=listed,
        rows=tuple(rows[run.name] for run in listed),
        arms=all_figures,
        reference=base,
        reference_warning=None,
        multiples=multiples,
        targets=targets,
        aulc_interval=interval,
        primary=figure,
        comparisons=compared,
        pairs=both_protocols(all_figures, between),
        rungs=rungs,
        interactions=interactions(all_figures, base, figure),
        claims=tests,
        ranks=ranks(between) if rungs is None else {},
        fixed_limit=limit,
        rescaled=rescaled_arms(all_figures, multiples),
        tunings=tuned,
        earlier=_earlier(records, multiples),
        subject=subject,
    )


def _earlier(records: tuple[Records, ...], multiples: tuple[float, ...]) -> tuple[dict[str, Value], ...]:
    """Return the rows of runs of earlier commands, with labels that are unique in the study."""
    together = [replace(record, runs=(*record.earlier, *record.runs)) for record in records]
    all_runs, every_arm = arms(together)
    names = {run.name for record in records for run in record.earlier}
    label_of = {run.name: arm.label for arm in every_arm for run in arm.runs}
    return tuple(row(run, label_of.get(run.name), multiples) for run in all_runs if run.name in names)


def _no_runs(records: Records) -> str:
    compared = [run for run in records.runs if not run.tunes]
    counts = []
    for status, reasons in sorted(grouped((run.status, run.reason) for run in compared).items()):
        why = next((f" ({plain(reason, 120)})" for reason in reasons if reason), "")
        counts.append(f"{len(reasons)} {plain(status, 30)}{why}")
    if tuning := len(records.runs) - len(compared):
        counts.append(f"{tuning} that tune learning rates")
    again = "run its command again"
    if {run.status for run in compared} == {"diverged"}:
        again = "the same command does not repeat them: choose another trainer.learning_rate"
    return f"study={records.study} has no finished run: {', '.join(counts)}; {again}"


def _targets(reference: Arm) -> tuple[Target, ...]:
    targets = []
    for fraction, suffix in TARGETS.items():
        losses = [loss for run in reference.finished if (loss := measures.loss_at(run, fraction)) is not None]
        if losses and all(measures.can_confirm(run, fraction) for run in reference.finished):
            targets.append(Target(fraction, suffix, median(losses), len(losses)))
    return tuple(targets)
