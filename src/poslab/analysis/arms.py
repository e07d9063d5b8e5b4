"""Group runs into arms: an arm is the whole configuration except the seed, within one study.

Runs with the same configuration and seed but different code or data are not averaged: of those that ended,
finished or diverged, the last one counts, and the others are listed as superseded.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from poslab.analysis.palette import arm_numbers
from poslab.analysis.statistics import grouped
from poslab.config.request import BESIDE_THE_RESULT, flat_settings
from poslab.config.schema import ADAMW, GPT2_BLOCK, HELD_OUT, SHARING, is_tokenizer_file
from poslab.config.text import plain
from poslab.record.reader import PART, Rates, Records, ReportError, Run
from poslab.record.schema import ENDED
from poslab.record.summary import is_pretrained

# Keys that do not distinguish arms.
BESIDE_AN_ARM = {*BESIDE_THE_RESULT, "seed", PART}
RESCALING = ("rescale", "rescale_factor", "recalibration_steps")  # of evaluate: they add lines to a run's own
ABSENT = {  # the label of an arm without the setting; records omit the last four settings at these values
    "from": "from drawn weights",
    "data.name": "",
    "objective.kind": "causal",
    "data.windows": "windows=joined",
    "data.held_out": f"held_out={HELD_OUT}",
    "evaluate.documents": "documents=single",
}
RATES = tuple(f"trainer.{name}" for name in Rates._fields)
# Label formats of settings that studies often compare. Where settings vary together, labels name the first.
WORDS = {
    "objective.kind": "{}",
    "context_length": "L={}",
    "model.width": "width {}",
    "model.layers": "{} layers",
    "model.heads": "{} heads",
    "model.norm": "norm={}",  # not the other block settings that change with it
    "data.name": "{}",  # the name of a text from a package
    "data.source": "{}",
    "trainer.learning_rate": "lr {}",
    "trainer.max_steps": "{} steps",
}

BESIDE_A_TEXT = {"vocabulary", "windows", "held_out"}  # keys of `data` that say how a text is used

Settings = Mapping[str, Any]  # a configuration by dotted key
BLOCK = tuple(f"model.{name}" for name, _ in GPT2_BLOCK)


@dataclass(frozen=True)
class Arm:
    """One scheme with one attention and configuration, and a run for each seed."""

    label: str
    pos: str
    attention: str
    runs: tuple[Run, ...]  # all its runs, as listed
    differing: Mapping[str, Any]  # its values of the configuration keys in which the study's arms differ
    on_its_text: str = ""  # the label without the text, if the study has several texts
    look: int = 0  # the number of its colour and marker in figures and tables

    @property
    def study(self) -> str:
        return self.runs[0].study

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that count, sorted by seed."""
        return tuple(sorted((run for run in self.runs if run.status == "done"), key=lambda run: run.seed))

    @property
    def seeds_started(self) -> int:
        """The number of seeds with runs, however these ended."""
        return len({run.seed for run in self.runs})

    @property
    def context_length(self) -> int:
        return self.runs[0].context_length


def arms(studies: Sequence[Records]) -> tuple[tuple[Run, ...], tuple[Arm, ...]]:
    """Return all runs, with superseded ones marked, and their arms in the order of the studies' plans.

    Runs that tune a learning rate belong to no arm.
    """
    counted: dict[str, str] = {}  # the names of runs counted so far, by identity
    runs = [_once(run, counted) for records in studies for run in _supersede(records.runs)]
    groups = grouped(((run.study, key(run)), run) for run in runs if run.readable and not run.tunes)
    tuned = {run.study for run in runs if run.readable and run.tunes}
    unordered = _arms(list(groups.values()), tuned)
    ordered = []
    for records in studies:
        of_study = [arm for arm in unordered if arm.study == records.study]
        ordered += of_study if records.ordered else sorted(of_study, key=lambda arm: _natural(arm.label))
    looks = arm_numbers((arm.pos, arm.attention) for arm in ordered)
    return tuple(runs), tuple(replace(arm, look=look) for arm, look in zip(ordered, looks, strict=True))


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
            on_its_text,
        )
        for label, group, options, on_its_text in zip(
            labels(groups, tuned), groups, flat, _without_texts(groups, tuned), strict=True
        )
    ]


def _without_texts(groups: Sequence[Sequence[Run]], tuned: Collection[str]) -> list[str]:
    """Return labels that are equal for arms that differ only in the text; empty strings if there is one text.

    In a tuned study such arms may also differ in the rates that were chosen for them on each text.
    """
    firsts = [group[0] for group in groups]
    if len(set(map(text_of, firsts))) < 2:
        return [""] * len(groups)

    def on_first_text(run: Run) -> Run:
        data, first_data = (member.config.get("data") or {} for member in (run, firsts[0]))
        used = {name: data[name] for name in BESIDE_A_TEXT & data.keys()}
        trainer = dict(run.config.get("trainer") or {})
        if run.study in tuned:
            trainer |= dict.fromkeys(Rates._fields)
        changed = {
            "config": {**run.config, "trainer": trainer, "data": {**first_data, **used}},
            "data": firsts[0].manifest.data,
        }
        return replace(run, manifest=run.manifest.model_copy(update=changed))

    return shared_labels(list(map(on_first_text, firsts)), tuned)


def shared_labels(runs: Sequence[Run], tuned: Collection[str]) -> list[str]:
    """Return a label for each run, equal for runs with the same study and settings."""
    keys = [(run.study, key(run)) for run in runs]
    groups = {name: [run] for name, run in zip(keys, runs, strict=True)}
    named = dict(zip(groups, labels(list(groups.values()), tuned), strict=True))
    return [named[name] for name in keys]


def choose_reference(
    candidates: Sequence[Arm], studies: Sequence[Records], requested: str | None
) -> tuple[Arm, str | None]:
    """Return the reference arm, and a warning if the study's own choice fits no arm or several.

    If the arms that fit are each on another text or task, take the first. Of several studies, the first
    one's choice counts. Raise ReportError if `requested` fits no arm or several.
    """
    choice = studies[0].reference if requested is None else requested
    if choice is None:
        return next((arm for arm in candidates if arm.finished), candidates[0]), None
    fitting = _fitting(candidates, plain(choice))
    texts = {(text_of(arm.runs[0]), arm.runs[0].objective) for arm in fitting}
    if len(texts) == len(fitting) > 0:
        return fitting[0], None
    studied = "this study" if len(studies) == 1 else "these studies"
    how = f"fits {len(fitting)} arms" if fitting else "is no arm"
    if requested is not None:
        listed = "; ".join(arm.label for arm in fitting or candidates)
        raise ReportError(f"reference={plain(requested, 60)} {how} of {studied}; name one of: {listed}")
    arm = (fitting or candidates)[0]
    return arm, f"The requested reference {plain(choice, 60)} {how} of {studied}; compared with {arm.label}."


def text_of(run: Run) -> str:
    """Return a key that is equal for runs with `data` settings of the same text, whatever the tokenizer."""
    data = run.config.get("data") or {}
    return json.dumps({k: v for k, v in data.items() if k not in BESIDE_A_TEXT}, sort_keys=True, default=str)


def _natural(label: str) -> list[tuple[int, str]]:
    """Return a sort key that puts base=500 before base=10000."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", label)]


def _fitting(candidates: Sequence[Arm], label: str) -> list[Arm]:
    """Return the arms that `label` names: by whole label, by label within a study or on a text, or by scheme.

    If arms of several studies fit, return only those of the first.
    """
    for names in (
        lambda arm: (arm.label,),
        lambda arm: (arm.label.removeprefix(f"{arm.study}: "),),
        lambda arm: (arm.on_its_text, arm.on_its_text.removeprefix(f"{arm.study}: ")),
        lambda arm: (arm.pos, f"{arm.pos} / {arm.attention}"),
    ):
        fitting = [arm for arm in candidates if label in names(arm)]
        if fitting:
            return [arm for arm in fitting if arm.study == fitting[0].study]
    return []


def _once(run: Run, counted: dict[str, str]) -> Run:
    """Mark an ended run as superseded if the same run was counted before, in an earlier study."""
    identity = run.manifest.identity
    if run.status not in ENDED or identity is None:
        return run
    first = counted.setdefault(identity, run.name)
    if first == run.name:
        return run
    return replace(run, status="superseded", reason=f"{first} is the same run")


def _supersede(runs: Sequence[Run]) -> list[Run]:
    """Mark ended runs as superseded if another run with the same configuration and seed ended later."""
    ended = sorted((run for run in runs if run.status in ENDED), key=finished_at)
    same = {run.name: (run.tunes, key(run), run.seed) for run in ended}
    latest = {same[run.name]: run.name for run in ended}
    marked = []
    for run in runs:
        winner = latest[same[run.name]] if run.name in same else run.name
        if winner != run.name:
            why = f"{winner} is the same configuration and seed, finished later"
            run = replace(run, status="superseded", reason=why)
        marked.append(run)
    return marked


def finished_at(run: Run) -> tuple[str, str]:
    """Return a key that sorts runs by their end times, all of which are in UTC."""
    return run.manifest.finished or "", run.name


def key(run: Run) -> str:
    """Return a string that is equal for runs of the same arm.

    If they name files, the content counts too, since a record has only a file's name.
    """
    data = run.config.get("data") or {}
    files = data.get("path") is not None or is_tokenizer_file(data.get("vocabulary"))
    decided = [arm_settings(run.config), run.data_fingerprint if files else None]
    return json.dumps(decided, sort_keys=True, default=str)


def arm_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections that define an arm, without an empty probe, a scheme rate of 1 and devices."""
    sections = {name: value for name, value in config.items() if name not in BESIDE_AN_ARM}
    if not (sections.get("probe") or {}).get("tasks"):
        sections.pop("probe", None)
    if sections.get("model") is not None:
        sections["model"] = {
            key: "".join(map(str, value)) or "none" if isinstance(value, list) else value
            for key, value in {**GPT2_BLOCK.model_dump(), **sections["model"]}.items()
        }
    if "trainer" in sections:
        trainer = {"optimizer": ADAMW, **sections["trainer"]}
        left_out = {*SHARING, *(["scheme_rate"] if trainer.get("scheme_rate") == 1 else [])}
        sections["trainer"] = {name: value for name, value in trainer.items() if name not in left_out}
    return sections


def block(config: Mapping[str, Any]) -> str:
    """Return the settings of a model's block that differ from GPT-2's: `norm=rms, mlp=swiglu`."""
    model = arm_settings(config).get("model") or {}
    default = arm_settings({"model": {}})["model"]
    changed = [(key, model[key]) for key, value in default.items() if model.get(key, value) != value]
    return ", ".join(f"{key}={plain(value, 20).lower()}" for key, value in changed)


def settings(config: Mapping[str, Any]) -> Settings:
    """Return the settings that define an arm, by dotted key."""
    return flat_settings(arm_settings(config), clean=partial(plain, limit=60))


def differing(configurations: Sequence[Settings]) -> list[str]:
    """Return the keys in which the configurations differ."""
    keys = sorted({name for options in configurations for name in options})
    return [
        name
        for name in keys
        if len({json.dumps(options.get(name), default=str) for options in configurations}) > 1
    ]


def labels(groups: Sequence[Sequence[Run]], tuned: Collection[str]) -> list[str]:
    """Return a distinct label for each arm, with the study's name if there are several studies.

    A label names only what differs within a study. In the `tuned` studies, which choose a learning rate for
    each arm, it names no learning rate.
    """
    several = len({group[0].attention for group in groups}) > 1
    by_study = grouped((group[0].study, i) for i, group in enumerate(groups))
    names = [""] * len(groups)
    for study, places in by_study.items():
        arm_labels = _in_a_study([groups[i][0] for i in places], several, study in tuned)
        for i, label in zip(places, arm_labels, strict=True):
            names[i] = f"{plain(study, 80)}: {label}" if len(by_study) > 1 else label
    return names


def _in_a_study(firsts: Sequence[Run], several: bool, tuned: bool) -> list[str]:
    """Return labels from each arm's first run: scheme, attention if it varies, and other differences."""
    flat = [settings(run.config) for run in firsts]
    keys = differing(flat)
    prefixes = ("pos.", "attention.", *(f"evaluate.{name}" for name in RESCALING), *(RATES if tuned else ()))
    bare = [
        f"{plain(run.pos, 80)} / {plain(run.attention, 80)}"
        if several and not is_pretrained(run)
        else plain(run.pos, 80)
        for run in firsts
    ]
    # A recipe sets scheme and block, so labels omit the block if the schemes already distinguish the arms.
    implied = BLOCK if len(set(bare)) == len(bare) else ()
    needed = _needed(flat, [key for key in keys if not key.startswith(prefixes) and key not in implied])
    # A published model's name identifies it; options are added only where several have one name.
    label_keys = [[] if is_pretrained(run) else needed for run in firsts]
    names = [_with_settings(*parts) for parts in zip(bare, flat, label_keys, strict=True)]
    # A scheme's label should already name its options; they are added only to labels that are still equal.
    first = tuple(names)
    for i, (label, options) in enumerate(zip(first, flat, strict=True)):
        same = [values for values, text in zip(flat, first, strict=True) if text == label]
        extra = [key for key in differing(same) if key.startswith(prefixes)]
        if is_pretrained(firsts[i]):
            extra = _needed(same, keys)
        names[i] = _with_settings(bare[i], options, [*label_keys[i], *extra])
    second = tuple(names)
    for i, label in enumerate(second):
        if second.count(label) > 1:
            digest = hashlib.sha256(key(firsts[i]).encode()).hexdigest()
            names[i] = f"{label} ({digest[:6]})"
    return names


def _needed(flat: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Return the `keys` that are needed to distinguish the configurations, those of WORDS first."""
    order = list(WORDS)
    chosen: list[str] = []
    groups = 1
    for key in sorted(keys, key=lambda key: order.index(key) if key in order else len(order)):
        apart = len({repr([options.get(name) for name in (*chosen, key)]) for options in flat})
        if apart > groups:
            chosen.append(key)
            groups = apart
    return chosen


def _with_settings(label: str, options: Settings, keys: Sequence[str]) -> str:
    """Return the label, followed by the settings with these `keys`."""
    return " ".join(filter(None, [label, *(_setting(key, options, keys) for key in keys)]))


def _setting(name: str, options: Settings, keys: Sequence[str]) -> str:
    """Return a setting for a label, under the last part of its name if that is unique among `keys`."""
    last = name.rpartition(".")[2]
    if name.startswith("callbacks.") and last == "_target_":  # a callback is named by its class
        return plain(options.get(name, ""), 60).rpartition(".")[2]
    short = last if [key.rpartition(".")[2] for key in keys].count(last) == 1 else name
    if name not in options:
        return ABSENT.get(name, f"no {short}")
    value = options[name]
    text = f"{value:g}" if isinstance(value, float) else plain(value, 60)
    text = text.lower() if isinstance(value, bool) else text  # as on the command line
    return WORDS[name].format(text) if name in WORDS else f"{short}={text}"
