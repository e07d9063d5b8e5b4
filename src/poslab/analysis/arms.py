"""Runs into arms: an arm is everything in the configuration but the seed, in one study.

Two finished runs of one configuration made with different code or data do not average: the one that finished
last counts and the others are listed as superseded.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from poslab.config.request import BESIDE_THE_RESULT, flat_settings
from poslab.config.text import plain
from poslab.record.reader import PART, Rates, Records, ReportError, Run

# Keys that do not make an arm.
BESIDE_AN_ARM = {*BESIDE_THE_RESULT, "seed", PART}
RESCALING = ("rescale", "rescale_factor", "recalibration_steps")  # of evaluate: lines beside the run's own
ABSENT = {"from": "from drawn weights"}  # what an arm without a setting is called
RATES = tuple(f"trainer.{name}" for name in Rates._fields)
# What labels call settings that studies often compare; the first are named where others follow from them.
WORDS = {
    "context_length": "L={}",
    "model.width": "width {}",
    "model.layers": "{} layers",
    "model.heads": "{} heads",
    "data.source": "{}",
    "trainer.learning_rate": "lr {}",
    "trainer.max_steps": "{} steps",
}

Settings = Mapping[str, Any]  # a configuration by dotted key
ENDED = ("done", "diverged")  # made again, such a run would end the same


@dataclass(frozen=True)
class Arm:
    """One scheme under one attention and configuration, with a run a seed."""

    label: str
    pos: str
    attention: str
    runs: tuple[Run, ...]  # every record of it, as listed
    differing: Mapping[str, Any]  # the configuration keys in which the study's arms differ

    @property
    def study(self) -> str:
        return self.runs[0].study

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that count, by seed."""
        return tuple(sorted((run for run in self.runs if run.status == "done"), key=lambda run: run.seed))

    @property
    def seeds_started(self) -> int:
        """Whatever became of their runs."""
        return len({run.seed for run in self.runs})

    @property
    def context_length(self) -> int:
        return self.runs[0].context_length


def arms(studies: Sequence[Records]) -> tuple[tuple[Run, ...], tuple[Arm, ...]]:
    """All runs with superseded ones marked, and the arms they make, in the order of the studies' plans.

    Runs that tune a learning rate are among the first and in no arm.
    """
    runs: list[Run] = []
    groups: dict[tuple[str, str], list[Run]] = {}
    counted: dict[str, str] = {}  # by identity, what is counted already
    for records in studies:
        marked = [_once(run, counted) for run in _supersede(records.runs)]
        runs += marked
        for run in marked:
            if run.readable and not run.tunes:
                groups.setdefault((run.study, key(run.config)), []).append(run)
    tuned = {run.study for run in runs if run.readable and run.tunes}
    unordered = _arms(list(groups.values()), tuned)
    ordered: list[Arm] = []
    for records in studies:
        mine = [arm for arm in unordered if arm.study == records.study]
        ordered += mine if records.ordered else sorted(mine, key=lambda arm: _natural(arm.label))
    return tuple(runs), tuple(ordered)


def _arms(groups: list[list[Run]], tuned: set[str]) -> list[Arm]:
    flat = [settings(group[0].config) for group in groups]
    keys = differing(flat)
    return [
        Arm(
            label,
            plain(group[0].pos, 80),
            plain(group[0].attention, 80),
            tuple(group),
            {name: options.get(name) for name in keys},
        )
        for label, group, options in zip(labels(groups, tuned), groups, flat, strict=True)
    ]


def choose_reference(
    candidates: Sequence[Arm], studies: Sequence[Records], requested: str | None
) -> tuple[Arm, str | None]:
    """The arm that the others are compared with, and a warning where the study's own choice fits no one arm.

    Of several studies the first one's. Raises ReportError where `requested` fits no arm, or several.
    """
    whose, its = ("this study", "its") if len(studies) == 1 else ("these studies", "their")
    if requested is not None:
        fitting = _fitting(candidates, requested)
        shown = "; ".join(arm.label for arm in fitting or candidates)
        if not fitting:
            raise ReportError(f"reference={plain(requested, 60)} is no arm of {whose}; {its} arms: {shown}")
        if len(fitting) > 1:
            raise ReportError(f"reference={plain(requested, 60)} fits {len(fitting)} arms, name one: {shown}")
        return fitting[0], None
    planned = studies[0].reference
    if planned is None:
        return next((arm for arm in candidates if arm.finished), candidates[0]), None
    fitting = _fitting(candidates, plain(planned))
    if len(fitting) == 1:
        return fitting[0], None
    arm = (fitting or candidates)[0]
    how = "fits several arms" if fitting else f"is no arm of {whose}"
    return arm, f"The reference asked for, {plain(planned, 60)}, {how}; compared with {arm.label}."


def _natural(label: str) -> list[tuple[int, str]]:
    """Sorts base=500 before base=10000."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", label)]


def _fitting(candidates: Sequence[Arm], label: str) -> list[Arm]:
    """The arms called so: by their whole label, by what it is in their study, or by their scheme.

    In several studies, those of the first one that has any.
    """
    for names in (
        lambda arm: (arm.label,),
        lambda arm: (arm.label.removeprefix(f"{arm.study}: "),),
        lambda arm: (arm.pos, f"{arm.pos} / {arm.attention}"),
    ):
        fitting = [arm for arm in candidates if label in names(arm)]
        if fitting:
            return [arm for arm in fitting if arm.study == fitting[0].study]
    return []


def _once(run: Run, counted: dict[str, str]) -> Run:
    """A run that another of the studies has as well counts there alone."""
    identity = run.manifest.identity
    if run.status not in ENDED or identity is None:
        return run
    first = counted.setdefault(identity, run.name)
    if first == run.name:
        return run
    return replace(run, status="superseded", reason=f"{first} is the same run")


def _supersede(runs: Iterable[Run]) -> tuple[Run, ...]:
    runs = tuple(runs)
    latest: dict[tuple[bool, str, int], Run] = {}
    for run in runs:
        if run.status in ENDED:
            same = _same(run)
            if same not in latest or finished_at(run) >= finished_at(latest[same]):
                latest[same] = run
    marked = []
    for run in runs:
        winner = latest[_same(run)] if run.status in ENDED else run
        if winner is not run:
            why = f"{winner.name} is the same configuration and seed, finished later"
            run = replace(run, status="superseded", reason=why)
        marked.append(run)
    return tuple(marked)


def _same(run: Run) -> tuple[bool, str, int]:
    return run.tunes, key(run.config), run.seed


def finished_at(run: Run) -> tuple[datetime, str]:
    """For the order in which runs ended."""
    try:
        when = datetime.fromisoformat(str(run.manifest.finished))
    except ValueError:
        when = datetime.min
    return (when if when.tzinfo else when.replace(tzinfo=UTC)), run.name


def key(config: Mapping[str, Any]) -> str:
    """The same for the runs of one arm."""
    return json.dumps(arm_settings(config), sort_keys=True, default=str)


def arm_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that make an arm. No probe, and a scheme's rate of 1, are as before there was any."""
    sections = {name: value for name, value in config.items() if name not in BESIDE_AN_ARM}
    probe = sections.get("probe")
    if isinstance(probe, Mapping) and not probe.get("tasks"):
        del sections["probe"]
    trainer = sections.get("trainer")
    if isinstance(trainer, Mapping) and trainer.get("scheme_rate") == 1:
        sections["trainer"] = {name: value for name, value in trainer.items() if name != "scheme_rate"}
    return sections


def settings(config: Mapping[str, Any]) -> Settings:
    """All that makes an arm, by dotted key."""
    return flat_settings(arm_settings(config), clean=partial(plain, limit=60))


def differing(configurations: Sequence[Settings]) -> list[str]:
    """The keys in which they are not all the same."""
    keys = sorted({name for one in configurations for name in one})
    return [
        name for name in keys if len({json.dumps(one.get(name), default=str) for one in configurations}) > 1
    ]


def labels(groups: Sequence[Sequence[Run]], tuned: Collection[str]) -> list[str]:
    """A label for the runs of each arm that no two share, under its study's name where there are several.

    Only what differs inside a study is in a label; `tuned` are the studies whose learning rates were chosen
    arm by arm, so that a rate is no part of what an arm is.
    """
    several = len({group[0].attention for group in groups}) > 1
    by_study: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        by_study.setdefault(group[0].study, []).append(i)
    names = [""] * len(groups)
    for study, places in by_study.items():
        own = _in_a_study([groups[i][0] for i in places], several, study in tuned)
        for i, label in zip(places, own, strict=True):
            names[i] = f"{plain(study, 80)}: {label}" if len(by_study) > 1 else label
    return names


def _in_a_study(firsts: Sequence[Run], several: bool, tuned: bool) -> list[str]:
    """The scheme, the attention where it varies, and what else differs; from the first run of each arm."""
    flat = [settings(run.config) for run in firsts]
    keys = differing(flat)
    own = ("pos.", "attention.", *(f"evaluate.{name}" for name in RESCALING), *(RATES if tuned else ()))
    shown = _telling(flat, [key for key in keys if not key.startswith(own)])
    bare = [
        f"{plain(run.pos, 80)} / {plain(run.attention, 80)}" if several else plain(run.pos, 80)
        for run in firsts
    ]
    names = [_beside(label, options, shown) for label, options in zip(bare, flat, strict=True)]
    # The scheme's label should already say its options; where it does not, the options do.
    first = tuple(names)
    for i, (label, options) in enumerate(zip(first, flat, strict=True)):
        same = [other for other, text in zip(flat, first, strict=True) if text == label]
        extra = [key for key in keys if key.startswith(own) and len({repr(o.get(key)) for o in same}) > 1]
        names[i] = _beside(bare[i], options, [*shown, *extra])
    second = tuple(names)
    for i, label in enumerate(second):
        if second.count(label) > 1:
            digest = hashlib.sha256(key(firsts[i].config).encode()).hexdigest()
            names[i] = f"{label} ({digest[:6]})"
    return names


def _telling(flat: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Those of `keys`, the commonest first, without which some of the configurations would look alike."""
    order = list(WORDS)
    shown: list[str] = []
    groups = 1
    for key in sorted(keys, key=lambda key: order.index(key) if key in order else len(order)):
        apart = len({repr([options.get(one) for one in (*shown, key)]) for options in flat})
        if apart > groups:
            shown.append(key)
            groups = apart
    return shown


def _beside(label: str, options: Settings, keys: Sequence[str]) -> str:
    """The label, and what `keys` are set to."""
    return " ".join([label, *(_setting(key, options, keys) for key in keys)])


def _setting(name: str, options: Settings, beside: Sequence[str]) -> str:
    """A setting in a label, by its last part where none `beside` it is called so, too."""
    last = name.rpartition(".")[2]
    short = last if [key.rpartition(".")[2] for key in beside].count(last) == 1 else name
    if name not in options:
        return ABSENT.get(name, f"no {short}")
    value = options[name]
    shown = f"{value:g}" if isinstance(value, float) else plain(value, 60)
    return WORDS[name].format(shown) if name in WORDS else f"{short}={shown}"
