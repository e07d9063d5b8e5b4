"""Runs into arms: an arm is everything in the configuration but the seed.

Two finished runs of one configuration made with different code or data do not average: the one that finished
last counts and the others are listed as superseded.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from poslab.report.formatting import listing, plain
from poslab.report.load import Records, Run
from poslab.report.sums import ReportError

BESIDE_THE_RESULT = ("seed", "study", "logger", "launcher")  # keys that do not make an arm
RESCALING = ("rescale", "rescale_factor", "recalibration_steps")  # of evaluate: lines beside the run's own


@dataclass(frozen=True)
class Arm:
    """One scheme under one attention and configuration, with a run a seed."""

    label: str
    pos: str
    attention: str
    runs: tuple[Run, ...]  # every record of it, as listed
    differing: Mapping[str, Any]  # the configuration keys in which the study's arms differ

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that count, by seed."""
        return tuple(sorted((run for run in self.runs if run.status == "done"), key=lambda run: run.seed))

    @property
    def asked(self) -> int:
        """How many seeds were started, whatever became of them."""
        return len({run.seed for run in self.runs})

    @property
    def context_length(self) -> int:
        return self.runs[0].context_length


def arms(records: Records) -> tuple[tuple[Run, ...], tuple[Arm, ...]]:
    """All runs with superseded ones marked, and the arms they make, in the order the study asked for."""
    runs = _supersede(records.runs)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.readable:
            groups.setdefault(_key(run.config), []).append(run)
    found = _label(list(groups.values()))
    if not records.ordered:
        found.sort(key=lambda arm: _natural(arm.label))
    return runs, tuple(found)


def choose_reference(found: Sequence[Arm], records: Records, wanted: str | None) -> tuple[Arm, str | None]:
    """The arm that the others are compared with, and a warning where the study's own choice fits no one arm.

    Raises ReportError where `wanted` fits no arm, or several.
    """
    if wanted is not None:
        fitting = _fitting(found, wanted)
        labels = "; ".join(arm.label for arm in fitting or found)
        if not fitting:
            raise ReportError(f"reference={plain(wanted, 60)} is no arm of this study; its arms: {labels}")
        if len(fitting) > 1:
            raise ReportError(f"reference={plain(wanted, 60)} fits {len(fitting)} arms, name one: {labels}")
        return fitting[0], None
    if records.reference is None:
        return found[0], None
    fitting = _fitting(found, plain(records.reference))
    if len(fitting) == 1:
        return fitting[0], None
    arm = (fitting or found)[0]
    how = "fits several arms" if fitting else "is no arm of this study"
    return arm, f"The reference asked for, {plain(records.reference, 60)}, {how}; compared with {arm.label}."


def _natural(label: str) -> list[tuple[int, str]]:
    """Sorts base=500 before base=10000."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", label)]


def _fitting(found: Sequence[Arm], label: str) -> list[Arm]:
    exact = [arm for arm in found if arm.label == label]
    return exact or [arm for arm in found if arm.pos == label or f"{arm.pos} / {arm.attention}" == label]


def _supersede(runs: Iterable[Run]) -> tuple[Run, ...]:
    runs = tuple(runs)
    latest: dict[tuple[str, int], Run] = {}
    for run in runs:
        if run.status == "done":
            key = (_key(run.config), run.seed)
            if key not in latest or _finished(run) >= _finished(latest[key]):
                latest[key] = run
    marked = []
    for run in runs:
        winner = latest[_key(run.config), run.seed] if run.status == "done" else run
        if winner is not run:
            changed = _what_changed(run, winner)
            why = f"{winner.name} is the same configuration and seed, finished later{changed}"
            run = replace(run, status="superseded", reason=why)
        marked.append(run)
    return tuple(marked)


def _what_changed(old: Run, new: Run) -> str:
    changed = []
    if any(old.manifest.get(key) != new.manifest.get(key) for key in ("code", "code_parts")):
        changed.append("other code")
    if old.data_fingerprint != new.data_fingerprint:
        changed.append("other data")
    return f", with {listing(changed)}" if changed else ""


def _finished(run: Run) -> tuple[datetime, str]:
    try:
        when = datetime.fromisoformat(str(run.manifest.get("finished")))
    except ValueError:
        when = datetime.min
    return (when if when.tzinfo else when.replace(tzinfo=UTC)), run.name


def _key(config: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in config.items() if key not in BESIDE_THE_RESULT}
    return json.dumps(kept, sort_keys=True, default=str)


def _label(groups: list[list[Run]]) -> list[Arm]:
    """Arms with labels no two share: the scheme, the attention where it varies, and what else differs."""
    flat = [dict(_flatten(group[0].config)) for group in groups]
    keys = sorted({key for options in flat for key in options})
    differing = [
        key for key in keys if len({json.dumps(options.get(key), default=str) for options in flat}) > 1
    ]
    own = ("pos.", "attention.", *(f"evaluate.{key}" for key in RESCALING))
    several = len({group[0].attention for group in groups}) > 1
    labels = []
    for group, options in zip(groups, flat, strict=True):
        parts = [
            f"{plain(group[0].pos, 80)} / {plain(group[0].attention, 80)}"
            if several
            else plain(group[0].pos, 80)
        ]
        parts += [_setting(key, options) for key in differing if not key.startswith(own)]
        labels.append(", ".join(parts))
    # The scheme's label should already say its options; where it does not, the options do.
    first = tuple(labels)
    for i, (label, options) in enumerate(zip(first, flat, strict=True)):
        same = [other for other, text in zip(flat, first, strict=True) if text == label]
        extra = [
            key for key in differing if key.startswith(own) and len({repr(o.get(key)) for o in same}) > 1
        ]
        labels[i] = ", ".join([label, *(_setting(key, options) for key in extra)])
    second = tuple(labels)
    for i, label in enumerate(second):
        if second.count(label) > 1:
            digest = hashlib.sha256(_key(groups[i][0].config).encode()).hexdigest()
            labels[i] = f"{label} ({digest[:6]})"
    return [
        Arm(
            label,
            plain(group[0].pos, 80),
            plain(group[0].attention, 80),
            tuple(group),
            {key: options.get(key) for key in differing},
        )
        for label, group, options in zip(labels, groups, flat, strict=True)
    ]


def _setting(key: str, options: Mapping[str, Any]) -> str:
    value = options.get(key)
    shown = f"{value:g}" if isinstance(value, float) else plain(value, 60)
    return f"{key}={shown}" if key in options else f"no {key}"


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in config.items():
        if not prefix and key in BESIDE_THE_RESULT:
            continue
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{plain(key, 60)}.")
        else:
            yield f"{prefix}{plain(key, 60)}", value
