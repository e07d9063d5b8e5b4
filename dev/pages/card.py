"""A scheme's card: what it does, which models use it, and what the archived studies measured."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import poslab
from dev.pages.archived import AT_8L, AT_L, RULE, TESTED, Setting, Tests, scheme_of, size
from dev.pages.shipped import SHIPPED
from poslab.analysis.estimates import ArmFigures
from poslab.config.compose import sections
from poslab.config.option_files import installed_conf
from poslab.model import positions
from poslab.paper.references import references
from poslab.report.formatting import DASH, interval, quantity
from poslab.report.sections.tasks import reached

ROOT = Path(__file__).resolve().parents[2]
CODE = Path(positions.__file__).parent
CONTROLS = {"rope": "RoPE", "alibi": "ALiBi"}  # each card says how its scheme compares with these
ACTS = {
    "nothing": "It changes nothing.",
    "input": "It is added to the input of the first layer.",
    "logits": "It acts on the logits, the scores of a query for each key before softmax.",
    "weights": "It replaces softmax.",
    "queries, keys": "It acts on queries and keys before their product.",
    "input; queries, keys": "It acts on the input of the first layer, and on queries and keys.",
    "by layer": "Layers may have different schemes.",
}  # keys: the words in docs/schemes.md

UNMEASURED = """\
Nothing: no archived study has this scheme. It is not known here whether its loss is below RoPE's at L, or
ALiBi's at 4 L and beyond; the second command above trains them side by side.
"""
MEASURED = f"""\
Losses are in nats per token with half a 95 % interval over seeds: at L over whole windows, at 8 L in sliding
windows, where each token has nearly 8 L of context. A difference is this scheme minus the other, so a
negative one favours this scheme. It is bold if p < {RULE} after Holm's correction over all pairs of its study
at L, 4 L and 8 L, as in [the zoo](../zoo.md); a report corrects over its own comparisons, so its p differ.
"Not separated" says little with three or fewer seeds, as in many studies. Studies share some of their runs,
and flash computes the same as softmax, so the counts are not independent. All models are small and early in
training: parameters, tokens per parameter and seeds are given beside each figure.
"""
RUNS = """\
| study | text, attention | arm | parameters | tokens per parameter | seeds | at L | at 8 L | tokens to target | tokens/s |
|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501
PAIRS = """
The target is the loss of the study's reference (in brackets) at 75 % of its budget. Tokens/s were measured on
a shared machine with two cores: compare them only within a study, and only roughly.

| study | text, attention | difference | at L | at 4 L | at 8 L |
|---|---|---|---|---|---|"""
TASKS = """
On tasks, L50 is the largest size up to which at least half of the answers are exact, as a multiple of the
longest training size. Only seeds that learned the task have one: 95 % exact at the longest training size
([measuring](../measuring.md#tasks)). A dash: no seed did, or the scheme is undefined past that size.

| study | task, trained on sizes up to | seeds that learned it | L50 of each |
|---|---|---|---|"""
INDEX = """\
# Cards of all schemes

One card for each scheme: what it does, which models use it and what poslab measured. On the site, click the
head of a column to sort by it. [The zoo](../zoo.md) shows all schemes in all archived studies;
[schemes.md](../schemes.md) has the formulas and pairs that work. `python -m dev.pages` writes these pages.

| scheme | acts on | own parameters | past L | archived studies | used by |
|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    """A row of the table of schemes in docs/schemes.md."""

    options: str
    acts_on: str
    formula: str
    source: str


# Titles of schemes with a class that is named differently from common usage.
TITLES = {
    "none": "No positions",
    "log_scaled": "Logits scaled by log i",
    "randomised": "RoPE at random positions",
    "rope_dynamic": "Dynamic NTK",
    "rope_id": "RoPE-ID",
    "rope_learned": "RoPE with learned positions",
    "rope_llama3": "RoPE of Llama 3.1",
    "rope_ntk": "NTK-aware RoPE",
    "rope_p": "p-RoPE",
    "rope_partial": "Partial RoPE",
    "rope_pi": "Position interpolation",
    "rope_warped": "RoPE on warped positions",
    "schedule": "Schemes by layer",
    "selective_rope": "Selective RoPE",
    "stick_breaking": "Stick-breaking",
    "xpos": "xPos",
}


@dataclass(frozen=True)
class Scheme:
    """A module of poslab.model.positions with its option files."""

    name: str
    options: tuple[str, ...]

    @cached_property
    def text(self) -> tuple[str, str]:
        """The first paragraph of the module's docstring, and the rest of it."""
        text = ast.get_docstring(ast.parse((CODE / f"{self.name}.py").read_text())) or ""
        first, _, rest = text.partition("\n\n")
        return " ".join(first.split()), rest

    @property
    def title(self) -> str:
        """The name of its class, such as `FIRE` or `KERPLE`, or its entry in TITLES."""
        return TITLES.get(self.name) or type(poslab.scheme(self.options[0])).__name__

    @cached_property
    def rows(self) -> list[Row]:
        """Its rows in docs/schemes.md: options, what they act on, formula, source."""
        table = (ROOT / "docs" / "schemes.md").read_text().partition("## Schemes")[2]
        table = table.replace("](#", "](../schemes.md#").replace("](../reports", "](../../reports")
        rows: list[Row] = []
        for line in table.splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) == len(Row._fields):
                row = Row(*cells)
                named = [f"`{name}`" for name in re.findall(r"`(\w+)`", row.options) if name in self.options]
                rows += [row._replace(options=", ".join(named))] if named else []
        return rows

    @cached_property
    def attentions(self) -> list[str]:
        """The attentions that it works under, from the table in docs/schemes.md, which a test checks."""
        grid = (ROOT / "docs" / "schemes.md").read_text().partition("<!-- grid -->\n")[2].splitlines()
        names = [name.strip(" `") for name in grid[0].split("|")[2:-1]]
        row = next(line for line in grid if line.startswith(f"| `{self.name}` |"))
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        return [name for name, cell in zip(names, cells, strict=True) if not cell.startswith(DASH)]

    @cached_property
    def parameters(self) -> int:
        """The number of its own parameters in a model of the default size."""
        return sum(weights.numel() for weights in poslab.scheme(self.options[0]).parameters())

    @cached_property
    def limit(self) -> str:
        """The lengths for which it is defined."""
        length = poslab.scheme(self.options[0]).max_length
        if length is None:
            return "defined at any length"
        return "undefined past L" if length == 128 else f"defined up to {length:,} tokens at L = 128"

    @property
    def shipped(self) -> str:
        return ", ".join(entry.models for entry in SHIPPED.get(self.name, ()))

    def arms(self, settings: Sequence[Setting]) -> Iterator[tuple[Setting, ArmFigures]]:
        """Yield its arms in the archived studies."""
        for setting in settings:
            yield from ((setting, arm) for arm in setting.arms if scheme_of(arm) == self.name)


def schemes() -> list[Scheme]:
    """Return all schemes that have an option file, sorted by name."""
    options: dict[str, list[str]] = {}
    for option, section in sections(installed_conf(), "pos").items():
        options.setdefault(section["scheme"], []).append(option)
    return [
        Scheme(name, tuple(sorted(names, key=lambda option: option != name)))  # the scheme's own name first
        for name, names in sorted(options.items())
    ]


def card(scheme: Scheme, caption: str | None, settings: Sequence[Setting], tests: Tests) -> str:
    """Return docs/schemes/NAME.md; `caption` belongs to its picture, None without one."""
    first, rest = scheme.text
    acts = dict.fromkeys(row.acts_on for row in scheme.rows)
    lines = [
        f"# {scheme.title}: `pos={scheme.options[0]}`",
        "",
        " ".join([first, *(ACTS.get(where, f"It acts on {where}.") for where in acts)]),
        "",
    ]
    if caption:
        lines += [f"![{scheme.title} by distance]({scheme.name}.svg)", "", caption, ""]
    lines += [f"| | {scheme.title} |", "|---|---|"]
    lines += [f"| {row.options} | {row.formula} |" for row in scheme.rows]
    model = "at width 128, 4 heads, 4 layers, L = 128"
    lines += [
        f"| length | {scheme.limit} |",
        f"| own parameters | {f'{scheme.parameters:,} {model}' if scheme.parameters else 'none'} |",
        f"| works under | {', '.join(f'`{name}`' for name in scheme.attentions)} |",
        f"| papers | {_papers(scheme)} |",
        f"| used by | {_shipped(scheme)} |",
        f"| code | [{scheme.name}.py](../../src/poslab/model/positions/{scheme.name}.py); {_files(scheme)} |",
        "",
    ]
    if rest:
        lines += ["## In detail", "", rest, ""]
    lines += ["## Train it", "", "```", *_commands(scheme), "```", ""]
    lines += ["## What poslab measured", "", *_measured(scheme, settings, tests)]
    return "\n".join(lines).rstrip() + "\n"


def _papers(scheme: Scheme) -> str:
    papers = []
    for reference in references():
        if ("scheme", scheme.name) in reference.subjects:
            fields = dict(re.findall(r"^  (\w+)\s*= \{(.*)\},?$", reference.text, re.MULTILINE))
            title = re.sub(r"[{}]", "", fields["title"]).replace("``", "“").replace("''", "”")
            number = fields.get("journal", "").partition("arXiv:")[2]
            address = fields.get("url") or (f"https://arxiv.org/abs/{number}" if number else None)
            papers.append((f"[{title}]({address})" if address else title) + f", {fields['year']}")
    sources = dict.fromkeys(row.source for row in scheme.rows if row.source not in ("", "below"))
    return "; ".join(papers) or "; ".join(sources) or "none: a control made for poslab"


def _shipped(scheme: Scheme) -> str:
    if not scheme.shipped:
        return "no model known to poslab"
    return f"{scheme.shipped} (according to their code in the transformers library)"


def _files(scheme: Scheme) -> str:
    return ", ".join(f"[{name}.yaml](../../conf/pos/{name}.yaml)" for name in scheme.options)


def _commands(scheme: Scheme) -> list[str]:
    option = scheme.options[0]
    attention = "" if "flash" in scheme.attentions else " attention=softmax"
    controls = [name for name in CONTROLS if name != option]
    return [
        f"python train.py pos={option}{attention}",
        f"python train.py -m pos={','.join([*controls, option])}{attention} seed=0,1,2,3,4",
    ]


def _measured(scheme: Scheme, settings: Sequence[Setting], tests: Tests) -> Iterator[str]:
    every = list(scheme.arms(settings))
    arms = [(setting, arm) for setting, arm in every if not setting.is_task]
    if not every:
        yield UNMEASURED
        return
    yield MEASURED
    for control, name in CONTROLS.items():
        if control != scheme.name:
            yield f"- **Against {name}**: {_against(arms, control, tests)}."
    yield ""
    yield RUNS
    for setting, arm in arms:
        study = f"[{setting.study}](../../reports/{setting.study}/report.md)"
        figures = loss(arm, AT_L), loss(arm, AT_8L), _target(setting, arm), _speed(arm)
        cells = study, setting.title, f"`{arm.arm.label}`", *size(arm), *figures
        yield f"| {' | '.join(cells)} |"
    yield PAIRS
    yield from _pairs(arms, tests)
    if len(arms) < len(every):
        yield TASKS
    for setting, arm in every:
        if setting.is_task:
            study = f"[{setting.study}](../../reports/{setting.study}/report.md)"
            task = arm.arm.finished[0].config["objective"]
            learned = f"{len(arm.by_seed('task_l50'))} of {len(arm.rows)}"
            l50 = ", ".join(f"{value:.2f}" for value in sorted(reached(arm).values())) or DASH
            yield f"| {study} | `{task['kind']}`, {task['longest']} | {learned} | {l50} |"


def _against(arms: Sequence[tuple[Setting, ArmFigures]], control: str, tests: Tests) -> str:
    """Return in how many settings an arm is lower, higher or not separated from a control, by length."""
    signs_by_figure: dict[str, list[float]] = {figure: [] for figure in TESTED}
    for setting, arm in arms:
        for rival in setting.arms:
            if rival.arm.pos == control and rival is not arm:
                for figure, signs in signs_by_figure.items():
                    test = tests.get((setting, figure, arm.arm.label, rival.arm.label))
                    if test is not None and test.p is not None:
                        signs.append(test.separated * test.difference.mean)
    parts = []
    for figure, signs in signs_by_figure.items():
        if signs:
            counts = {
                "lower": sum(sign < 0 for sign in signs),
                "higher": sum(sign > 0 for sign in signs),
                "not separated": sum(sign == 0 for sign in signs),
            }
            words = ", ".join(f"{word} in {n}" for word, n in counts.items() if n)
            parts.append(f"at {TESTED[figure]} {words} of {len(signs)} settings")
    missing = [TESTED[figure] for figure, signs in signs_by_figure.items() if not signs]
    if missing:
        parts.append(f"not tested at {' and '.join(missing)}" if parts else "not tested with several seeds")
    return "; ".join(parts)


def _pairs(arms: Sequence[tuple[Setting, ArmFigures]], tests: Tests) -> Iterator[str]:
    for setting, arm in arms:
        for rival in setting.arms:
            pair_tests = [tests.get((setting, figure, arm.arm.label, rival.arm.label)) for figure in TESTED]
            first = setting.arms.index(arm) < setting.arms.index(rival) or scheme_of(rival) != scheme_of(arm)
            if any(pair_tests) and first:  # two options of one scheme are compared once
                cells = [DASH if test is None else test.text for test in pair_tests]
                less = f"`{arm.arm.label}` minus `{rival.arm.label}`"
                yield f"| {setting.study} | {setting.title} | {less} | {' | '.join(cells)} |"


def loss(arm: ArmFigures, figure: str) -> str:
    """Return an arm's mean loss with half its 95 % interval over seeds."""
    estimate = arm.figures.get(figure)
    return DASH if estimate is None else interval(estimate.mean, estimate.half_width)


def _target(setting: Setting, arm: ArmFigures) -> str:
    if "" not in arm.reached:
        return DASH
    hits, runs = arm.reached[""]
    estimate = arm.figures.get("tokens_to_target")
    reference = f"({setting.results.reference.arm.label})"
    if estimate is None:
        return f"{hits} of {runs} runs reach it {reference}"
    half = "" if estimate.half_width is None else f" ± {quantity(estimate.half_width)}"
    return f"{quantity(estimate.mean)}{half} {reference}"


def _speed(arm: ArmFigures) -> str:
    rate = arm.figures["tokens_per_second"]
    return f"{quantity(rate.mean)}" + ("" if rate.half_width is None else f" ± {quantity(rate.half_width)}")


def index(every: Sequence[Scheme], settings: Sequence[Setting]) -> str:
    """Return docs/schemes/index.md."""
    text = INDEX
    for scheme in every:
        studies = dict.fromkeys(setting.study for setting, _ in scheme.arms(settings))
        acts = "; ".join(dict.fromkeys(row.acts_on for row in scheme.rows))
        past = "undefined" if "undefined" in scheme.limit else "defined"
        cells = f"[{scheme.title}]({scheme.name}.md)", acts, f"{scheme.parameters:,}", past, str(len(studies))
        text += f"| {' | '.join(cells)} | {scheme.shipped or DASH} |\n"
    return text
