"""The page docs/zoo.md: all schemes over all archived studies, one table per setting."""

from collections.abc import Iterable, Iterator, Sequence

from dev.pages.archived import AT_8L, AT_L, RULE, Setting, Tests, scheme_of, size
from dev.pages.card import Scheme, loss
from poslab.analysis.estimates import ArmFigures
from poslab.report.formatting import DASH

SHOWN = AT_L, AT_8L
HEAD = f"""\
# The zoo: all schemes over all archived studies

Each table is one setting: a study, text, attention, block, size, budget and L, in which arms differ only in
their scheme and its rates. A scheme has one place (1 is the lowest loss) if it is separated from every other
scheme in its table: p < {RULE} in a paired test over seeds (and documents, if the records have them) after
Holm's correction over all pairs at L, 4 L and 8 L in all tables of the study. Otherwise it has the range of
places that these tests leave open. If nothing differs in a study, a place is claimed with a probability of at
most {RULE}; this page has STUDIES studies. Losses are in nats per token with half a 95 % interval over seeds:
at L over whole windows, at 8 L in sliding windows.

**Losses in two tables do not compare**, since text, budget, size, L, attention or block differ; so no mean is
taken over tables. A dash means not defined, not measured or not tested at that length. Studies share some of
their runs. Tasks have exact answers instead of losses; these are on [the cards](schemes/index.md), which also
list each difference. [limits.md](limits.md) says what these studies do not show. `python -m dev.pages` writes
this page.
"""
UNPAIRED = """\
## Not compared

These arms differ from all other arms of their study in more than the scheme, such as the block:
"""


def zoo(schemes: Sequence[Scheme], settings: Sequence[Setting], tests: Tests) -> str:
    """Return docs/zoo.md."""
    settings = [setting for setting in settings if not setting.is_task]
    studies = {setting.study for setting in settings}
    lines = [HEAD.replace("STUDIES", str(len(studies)))]
    unpaired = []
    for setting in settings:
        if len(setting.arms) < 2:
            unpaired.append(setting)
        else:
            lines += [*_table(setting, tests), ""]
    lines.append(UNPAIRED)
    lines += [f"- {setting.study}, {setting.title}: {_link(setting.arms[0])}" for setting in unpaired]
    seen = {scheme_of(arm) for setting in settings for arm in setting.arms}
    missing = [f"[{scheme.name}](schemes/{scheme.name}.md)" for scheme in schemes if scheme.name not in seen]
    lines += ["", "## In no archived study", "", f"{', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _table(setting: Setting, tests: Tests) -> Iterator[str]:
    parameters, ratio, seeds = (_range(values) for values in zip(*map(size, setting.arms), strict=True))
    length = setting.arms[0].arm.finished[0].context_length
    trained = f"{parameters} parameters, {ratio} tokens per parameter, L = {length:,}"
    yield f"## {setting.study}: {setting.title}, {trained}"
    yield ""
    yield f"Seeds: {seeds} ([report](../reports/{setting.study}/report.md))."
    if seeds == "1":
        yield "One seed, so there are no tests and no places."
    yield ""
    yield "| scheme | loss at L | place at L | at 8 L | place at 8 L |"
    yield "|---|---|---|---|---|"
    for arm in sorted(setting.arms, key=lambda arm: arm.mean(AT_L) or 0.0):
        cells = [cell for figure in SHOWN for cell in (loss(arm, figure), place(setting, arm, figure, tests))]
        yield f"| {_link(arm)} | {' | '.join(cells)} |"


def _range(values: Iterable[str]) -> str:
    ordered = sorted(set(values), key=lambda value: float(value.split()[0]))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def place(setting: Setting, arm: ArmFigures, figure: str, tests: Tests) -> str:
    """Return the places that the tests leave open for an arm: `1`, `2–4`; a dash if nothing was tested."""
    tested = [
        test
        for rival in setting.arms
        if (test := tests.get((setting, figure, arm.arm.label, rival.arm.label))) is not None
        and test.p is not None
    ]
    if not tested:
        return DASH
    below = sum(test.separated and test.difference.mean > 0 for test in tested)  # arms with a lower loss
    above = sum(test.separated and test.difference.mean < 0 for test in tested)
    best, worst = 1 + below, 1 + len(tested) - above
    return f"**{best}**" if best == worst else f"{best}–{worst}"


def _link(arm: ArmFigures) -> str:
    return f"[{arm.arm.label}](schemes/{scheme_of(arm)}.md)"
