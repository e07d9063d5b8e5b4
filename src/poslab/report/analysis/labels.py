"""What makes an arm, and what arms are called: the scheme, and whatever else tells it from the others."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from poslab.config.request import BESIDE_THE_RESULT
from poslab.config.text import plain
from poslab.record.reader import PART, Run

# Keys that do not make an arm.
BESIDE_AN_ARM = {*BESIDE_THE_RESULT, "seed", PART}
RESCALING = ("rescale", "rescale_factor", "recalibration_steps")  # of evaluate: lines beside the run's own
RATE = "trainer.learning_rate"

Settings = Mapping[str, Any]  # a configuration by dotted key


def key(config: Mapping[str, Any]) -> str:
    """The same for the runs of one arm."""
    return json.dumps(deciding(config), sort_keys=True, default=str)


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that make an arm. No probe is the same as a record from before there was any."""
    kept = {name: value for name, value in config.items() if name not in BESIDE_AN_ARM}
    probe = kept.get("probe")
    if isinstance(probe, Mapping) and not probe.get("tasks"):
        del kept["probe"]
    return kept


def settings(config: Mapping[str, Any]) -> Settings:
    """All that makes an arm, by dotted key."""
    return dict(_flatten(deciding(config)))


def differing(found: Sequence[Settings]) -> list[str]:
    """The keys in which they are not all the same."""
    keys = sorted({name for one in found for name in one})
    return [name for name in keys if len({json.dumps(one.get(name), default=str) for one in found}) > 1]


def labels(groups: Sequence[Sequence[Run]], tuned: Collection[str]) -> list[str]:
    """A label for the runs of each arm that no two share, under its study's name where there are several.

    Only what differs inside a study is in a label; `tuned` are the studies whose learning rates were chosen
    arm by arm, so that a rate is no part of what an arm is.
    """
    several = len({group[0].attention for group in groups}) > 1
    by_study: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        by_study.setdefault(group[0].study, []).append(i)
    found = [""] * len(groups)
    for study, places in by_study.items():
        own = _in_a_study([groups[i][0] for i in places], several, study in tuned)
        for i, label in zip(places, own, strict=True):
            found[i] = f"{plain(study, 80)}: {label}" if len(by_study) > 1 else label
    return found


def _in_a_study(firsts: Sequence[Run], several: bool, tuned: bool) -> list[str]:
    """The scheme, the attention where it varies, and what else differs; from the first run of each arm."""
    flat = [settings(run.config) for run in firsts]
    keys = differing(flat)
    own = ("pos.", "attention.", *(f"evaluate.{name}" for name in RESCALING), *([RATE] if tuned else []))
    found = []
    for run, options in zip(firsts, flat, strict=True):
        scheme = plain(run.pos, 80)
        parts = [f"{scheme} / {plain(run.attention, 80)}" if several else scheme]
        parts += [_setting(name, options) for name in keys if not name.startswith(own)]
        found.append(", ".join(parts))
    # The scheme's label should already say its options; where it does not, the options do.
    first = tuple(found)
    for i, (label, options) in enumerate(zip(first, flat, strict=True)):
        same = [other for other, text in zip(flat, first, strict=True) if text == label]
        extra = [name for name in keys if name.startswith(own) and len({repr(o.get(name)) for o in same}) > 1]
        found[i] = ", ".join([label, *(_setting(name, options) for name in extra)])
    second = tuple(found)
    for i, label in enumerate(second):
        if second.count(label) > 1:
            digest = hashlib.sha256(key(firsts[i].config).encode()).hexdigest()
            found[i] = f"{label} ({digest[:6]})"
    return found


def _setting(name: str, options: Settings) -> str:
    value = options.get(name)
    shown = f"{value:g}" if isinstance(value, float) else plain(value, 60)
    return f"{name}={shown}" if name in options else f"no {name}"


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in config.items():
        if not prefix and name in BESIDE_AN_ARM:
            continue
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{plain(name, 60)}.")
        else:
            yield f"{prefix}{plain(name, 60)}", value
