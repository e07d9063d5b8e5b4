"""The archived studies as settings in which schemes are compared, and the tests between schemes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from poslab.analysis.arms import block, settings
from poslab.analysis.comparisons import comparable
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results, figures, subject_of
from poslab.analysis.spread import difference
from poslab.analysis.statistics import Difference, holm
from poslab.config.schema import CAUSAL
from poslab.record.archive import archived_studies, load_available
from poslab.report.formatting import interval

AT_L, AT_4L, AT_8L = "loss_1x", "sliding_4x", "sliding_8x"
TESTED = {AT_L: "L", AT_4L: "4 L", AT_8L: "8 L"}
RULE = 0.01  # two schemes are separated if the corrected p is below this
RATES = ("trainer.learning_rate", "trainer.scheme_rate")  # tuning may choose these for each scheme


@dataclass(frozen=True, eq=False)
class Setting:
    """Arms of one study that differ only in their scheme and its rates."""

    results: Results
    arms: tuple[ArmFigures, ...]

    @property
    def study(self) -> str:
        return self.results.studies[0]

    @property
    def is_task(self) -> bool:
        """Whether it is a task: right or wrong answers instead of losses that compare with those on texts."""
        return not self.arms[0].arm.finished[0].has_text

    @property
    def title(self) -> str:
        """The text, the objective if not the next token, the attention, and the block if not GPT-2's."""
        arm = self.arms[0].arm
        run = arm.finished[0]
        objective = "" if run.objective == CAUSAL["kind"] else run.objective
        parts = self.results.text, objective, arm.attention, block(run.config)
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class PairTest:
    """The difference of two schemes in a setting; `p` is corrected over the tests of the study."""

    difference: Difference
    p: float | None

    @property
    def separated(self) -> bool:
        return self.p is not None and self.p < RULE

    @property
    def text(self) -> str:
        """The difference with half its 95 % interval and p; in bold if the schemes are separated."""
        text = interval(self.difference.mean, self.difference.half_width, 3, sign=True)
        if self.p is None:
            return f"{text} (one seed)"
        value = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.2g}"
        return f"**{text}**, {value}" if self.separated else f"{text}, {value}"


Tests = Mapping[
    tuple[Setting, str, str, str], PairTest
]  # key: setting, figure, and the labels of an arm and the arm subtracted from it


def pairwise_tests(compared: Sequence[Setting]) -> Tests:
    """Return tests of all pairs of schemes at L, 4 L and 8 L in all settings.

    The tests of one study, over all its settings and texts, are one family (Holm 1979), so that a new study
    does not change the others. Each pair has both directions. Arms without the figure, or with losses that
    do not compare, have no test.
    """
    differences: dict[tuple[Setting, str, str, str], Difference] = {}
    for setting in compared:
        for arm, against in combinations(setting.arms, 2):
            if all(comparable(run, against.arm) for run in arm.arm.finished):
                for figure in TESTED:
                    if (between := difference(arm, against, figure)) is not None:
                        differences[setting, figure, arm.arm.label, against.arm.label] = between
    tests = {}
    for study in dict.fromkeys(setting.study for setting in compared):
        family = {key: item for key, item in differences.items() if key[0].study == study}
        corrected = holm({key: item.p for key, item in family.items() if item.p is not None})
        for (setting, figure, arm_label, other_label), item in family.items():
            p = corrected.get((setting, figure, arm_label, other_label))
            tests[setting, figure, arm_label, other_label] = PairTest(item, p)
            tests[setting, figure, other_label, arm_label] = PairTest(replace(item, mean=-item.mean), p)
    return tests


def size(arm: ArmFigures) -> tuple[str, str, str]:
    """Return an arm's parameters, training tokens per parameter and seeds."""
    parameters, tokens = (float(str(arm.rows[0][name])) for name in ("parameters", "tokens"))
    return f"{parameters / 1e6:.2f} M", f"{tokens / parameters:.2g}", str(len(arm.rows))


def scheme_of(arm: ArmFigures) -> str:
    """Return the name of the module of an arm's scheme."""
    return str(arm.arm.finished[0].config["pos"]["scheme"])


def results_of(study: str, reports: Path) -> Results:
    """Return the figures of a study archived in `reports`."""
    return figures(load_available(study, Path("no runs"), reports), subject_of(study), None)


def settings_of(reports: Path) -> tuple[Setting, ...]:
    """Return the settings of all studies archived in `reports`, sorted by study."""
    all_settings: list[Setting] = []
    for study in archived_studies(reports):
        whole = results_of(study, reports)
        for results in whole.texts or (whole,):
            all_settings += settings_in(results)
    return tuple(all_settings)


def settings_in(results: Results) -> Iterator[Setting]:
    """Yield the settings of a study on one text."""
    arms_by_setting: dict[str, list[ArmFigures]] = {}
    for item in results.arms:
        if item.rows:
            flat = settings(item.arm.finished[0].config)
            beside = [(name, value) for name, value in flat.items() if not name.startswith("pos.")]
            key = repr(sorted(pair for pair in beside if pair[0] not in RATES))
            arms_by_setting.setdefault(key, []).append(item)
    yield from (Setting(results, tuple(arms)) for arms in arms_by_setting.values())
