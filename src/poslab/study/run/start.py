"""Begin from a finished run, `from=RUN`: the settings that are taken over, and those that may change.

Such a run starts with the weights of a finished run, the source, and a new optimizer and schedule. Settings
that its command does not name are as in the source's record. Those that the weights depend on cannot change:
the model, the attention, the tokens and the positions, except numbers of schemes without learned parameters.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from poslab.config.compose import FILES, request_from, sections
from poslab.config.option_files import Conf, label_in, load
from poslab.config.request import Config, Request, Start, flat_settings
from poslab.config.schema import (
    CAUSAL,
    GPT2_BLOCK,
    SHARING,
    ConfigError,
    following_max_steps,
    is_tokenizer_file,
)
from poslab.config.text import plain
from poslab.data import tokenizer_file
from poslab.data.corpus import Corpus
from poslab.record.facts import Manifest, RunOrigin
from poslab.record.manifest import read_manifest
from poslab.record.schema import FINAL, TOKENIZER

FROM = "from"
TAKEN = (
    "context_length",
    "seed",
    "pos",
    "attention",
    "data",
    "objective",
    "model",
    "trainer",
    "evaluate",
    "probe",
)
# Settings of the machine rather than the run, which are taken from the command.
OF_THE_MACHINE = ("accelerator", "precision", "compile", *SHARING, "recompute", "checkpoint_seconds")
FOLLOWING = (("trainer", "warmup_steps"), ("evaluate", "validations"))  # they may depend on max_steps
KEY = re.compile(r"[+~]*([^=@]+)")


def request_of(
    settings: Mapping[str, Any], choices: Mapping[str, str], overrides: Sequence[str], conf: Conf
) -> Request:
    """Return the request for the settings that Hydra composed from `conf` and the command's `overrides`.

    With `from=RUN`, the run begins from RUN. Raise ConfigError if that cannot work.
    """
    composed = {key: value for key, value in settings.items() if key != FROM}
    if settings.get(FROM) is None:
        return request_from(composed, choices, conf)
    source = _source(str(settings[FROM]), Path(os.path.expanduser(str(settings.get("runs")))))
    start = _start(source)
    named = {match[1] for text in overrides if (match := KEY.match(text))}
    # Settings in the file of a study, a task or a recipe count as named by the command.
    files = {group: _in_file(load(conf.file(group, choices[group]))) for group in FILES if choices.get(group)}
    files = {group: names - named for group, names in files.items()}
    named = named.union(*files.values())
    taken, taken_choices = _taken_over(composed, choices, named, source[1], conf)
    request = request_from(taken, taken_choices, conf)
    _check(request.config, source[1], start, files)
    if request.config.tune.factors:
        raise ConfigError(
            f"tune and from: trials are validated on parts of the training text, which {start.run} has seen: "
            "leave tune out and sweep trainer.learning_rate"
        )
    notes = (*request.non_default_settings, f"{FROM}={start.arm}")
    # A record has windows and starts in tokens, so that its sections differ from files with shares of L.
    labels = {
        name: getattr(source[1], name)
        for name in ("pos", "attention")
        if not any(f"{word}.".startswith(f"{name}.") for word in named)
    }
    return replace(request, start=start, non_default_settings=notes, **labels)


def _source(name: str, runs: Path) -> tuple[Path, Manifest]:
    """Return the directory and manifest of the run `name`: a path, STUDY/RUN or a name in a single study."""
    path = Path(os.path.expanduser(name))
    studies = sorted(runs.iterdir()) if runs.is_dir() and "/" not in name else []
    places = [path, runs / name, *(study / name for study in studies)]
    matches = list(dict.fromkeys(path.resolve() for path in places if (path / "manifest.json").is_file()))
    if len(matches) > 1:
        listed = ", ".join(f"{path.parent.name}/{path.name}" for path in matches)
        raise ConfigError(f"from={name} is in several studies: choose one of {listed}")
    if not matches:
        raise ConfigError(
            f"from={name} is not a run: choose a run's directory, such as {runs}/STUDY/RUN; {_runs(runs)}"
        )
    manifest = read_manifest(matches[0])
    if manifest is None or manifest.status != "done":
        status = "missing" if manifest is None else plain(manifest.status, 30)
        raise ConfigError(f"from={name}: the run is {status}, not done: train it to its end first")
    if FINAL not in (manifest.files or {}) or not (matches[0] / FINAL).is_file():
        raise ConfigError(f"from={name}: there are no weights, {FINAL}, in {matches[0]}")
    if manifest.config is None or manifest.config.get("part") == "tuning":
        raise ConfigError(f"from={name} is a trial of a learning rate: choose a run of a comparison")
    return matches[0], manifest


def _runs(runs: Path) -> str:
    """Return the names of a few finished runs, for an error message."""
    names = [f"{path.parts[-3]}/{path.parts[-2]}" for path in sorted(runs.glob(f"[!.]*/*/{FINAL}"))]
    return f"some finished runs: {', '.join(names[:4])}" if names else f"{runs} has no finished run yet"


def _start(source: tuple[Path, Manifest]) -> Start:
    directory, manifest = source
    config = manifest.config or {}
    length = int(config["context_length"])
    # The steps that were trained: a callback may have ended training before max_steps.
    steps = (manifest.tokens or 0) // (length * int(config["trainer"]["batch_size"]))
    earlier = manifest.origin or RunOrigin()
    arm = json.dumps({key: value for key, value in config.items() if key != "seed"}, sort_keys=True)
    digest = hashlib.sha256(arm.encode()).hexdigest()[:6]
    return Start(
        directory=str(directory),
        study=str(manifest.study),
        run=str(manifest.run),
        identity=str(manifest.identity),
        checkpoint=(manifest.files or {})[FINAL],
        steps=steps + (earlier.steps or 0),
        tokens=(manifest.tokens or 0) + (earlier.tokens or 0),
        context_length=length,
        arm=f"{manifest.pos} at L {length} for {steps} steps ({digest})",
    )


def _taken_over(
    composed: Mapping[str, Any],
    choices: Mapping[str, str],
    named: set[str],
    manifest: Manifest,
    conf: Conf,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the composed settings, with the source's values for all that the command does not name.

    Return also the names of the options, for tables: the source's unless the command chooses another one.
    """
    recorded = manifest.config or {}
    settings, chosen = dict(composed), dict(choices)
    for name in TAKEN:
        if name in named:  # the command sets the value, or chooses an option of the group
            continue
        current = settings[name]
        if not isinstance(recorded.get(name), dict):
            settings[name] = recorded.get(name, current)
            continue
        # Older records lack settings that were added later, except in the sections of parts.
        later = {"model": GPT2_BLOCK.model_dump(), "trainer": current, "evaluate": current, "probe": current}
        from_command = {
            key: value
            for key, value in current.items()
            if (name == "trainer" and key in OF_THE_MACHINE)
            or any(f"{word}.".startswith(f"{name}.{key}.") for word in named)
        }
        settings[name] = {**later.get(name, {}), **recorded[name], **from_command}
    for name in ("pos", "attention"):
        if name not in named:
            chosen[name] = _option(name, recorded[name], str(getattr(manifest, name)), choices[name], conf)
    if "data" not in named:
        chosen["data"] = _option("data", recorded["data"], "", chosen["data"], conf)
    _follow_max_steps(settings, composed, recorded, named)
    return settings, chosen


def _in_file(content: Mapping[str, Any]) -> set[str]:
    """Return the settings in an option file, and the groups for which it chooses another option."""
    items = [item for item in content.get("defaults", []) if isinstance(item, dict)]
    groups = {key.removeprefix("override ").lstrip("/") for item in items for key in item}
    return groups | set(flat_settings({key: value for key, value in content.items() if key != "defaults"}))


def _option(group: str, section: Mapping[str, Any], label: str, otherwise: str, conf: Conf) -> str:
    """Return the option of a group with which a recorded label begins, else the one most like the section."""
    files = sections(conf, group)
    part = {"pos": "scheme", "attention": "kind", "data": "source"}[group]

    def likeness(option: str) -> tuple[int, int]:
        name = label_in(conf.file(group, option)) or option
        alike = sum(section.get(key) == value for key, value in files[option].items())
        return len(name) if f"{label} ".startswith(f"{name} ") else 0, alike

    options = (name for name in files if likeness(name)[0] or files[name].get(part) == section.get(part))
    return max(options, key=likeness, default=otherwise)


def _follow_max_steps(
    settings: dict[str, Any], composed: Mapping[str, Any], recorded: Mapping[str, Any], named: set[str]
) -> None:
    """Derive each number that depended on the source's `max_steps` from the run's own instead."""
    shares = {name: {**recorded[name], key: composed[name][key]} for name, key in FOLLOWING}
    earlier = following_max_steps(shares)
    for name, key in FOLLOWING:
        if f"{name}.{key}" not in named and earlier[name][key] == recorded[name].get(key):
            settings[name] = {**settings[name], key: composed[name][key]}


def _check(config: Config, manifest: Manifest, start: Start, files: Mapping[str, set[str]]) -> None:
    """Raise ConfigError if the command or one of its `files` changes a setting that the weights depend on."""
    recorded = {"objective": CAUSAL, **(manifest.config or {})}
    recorded["model"] = {**GPT2_BLOCK.model_dump(), **(recorded.get("model") or {})}
    asked = config.model_dump(mode="json")
    if asked["pos"] != recorded["pos"]:  # a record has windows and starts that follow L in tokens
        from poslab.model.gpt import build_parts  # imports PyTorch

        asked["pos"] = build_parts(config)[1].section()
    new, old = (
        flat_settings(
            {
                **{name: dict(settings[name]) for name in ("model", "attention", "objective", "pos")},
                # A record has only the name of the file.
                "data": {"vocabulary": Path(str(settings["data"].get("vocabulary"))).name},
            }
        )
        for settings in (asked, recorded)
    )
    learns = config.scheme_learns or any(key.startswith("pos.") and key.endswith(".rate") for key in old)
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key) and not _may_change(key, old, new, learns):
            group = "data.vocabulary" if key.startswith("data") else key.partition(".")[0]
            cause = next((file for file, names in files.items() if names & {key, group}), group)
            raise ConfigError(
                f"{key}={new.get(key)}: {start.run} was trained with {old.get(key)}, and its weights "
                f"depend on that: leave {cause} out"
            )


def _may_change(key: str, old: Mapping[str, Any], new: Mapping[str, Any], learns: bool) -> bool:
    """Return whether a setting may differ from the source's: numbers of schemes without learned parameters.

    Rotations without learned parameters, such as rope and rope_yarn, may also replace one another.
    """
    if learns or not key.startswith("pos."):
        return key == "pos.rate"
    if key == "pos.scheme":
        return _both_turn(str(old[key]), str(new[key]))
    return key not in old or key not in new or (_number(old[key]) and _number(new[key]))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _both_turn(*schemes: str) -> bool:
    """Return whether all schemes are plain rotations by frequencies, so that a model can use any of them."""
    from poslab.config.registry import find
    from poslab.model import positions
    from poslab.model.positions import Scheme
    from poslab.model.positions.rope import RoPE

    kinds = [find(scheme, Scheme, positions.__name__, "pos.scheme") for scheme in schemes]
    return all(issubclass(kind, RoPE) for kind in kinds)


def check_length(config: Config, start: Start) -> None:
    """Raise ConfigError if L has changed and the scheme has weights for each position."""
    if config.context_length == start.context_length:
        return
    from poslab.model.gpt import build_parts

    earlier = config.model_copy(update={"context_length": start.context_length})
    shapes = [
        {name: tensor.shape for name, tensor in build_parts(settings)[1].state_dict().items()}
        for settings in (earlier, config)
    ]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"context_length={config.context_length}: with pos.scheme={config.pos.get('scheme')}, "
            f"{start.run} has learned a vector for each of {start.context_length} positions and no others: "
            f"choose context_length={start.context_length}, or begin from a run with rope or another scheme"
        )


def check_text(config: Config, corpus: Corpus, start: Start) -> None:
    """Raise ConfigError if the tokens are not those that the source was trained on."""
    vocabulary = config.data.get("vocabulary")
    if vocabulary == "bytes":
        return
    manifest = read_manifest(Path(start.directory)) or Manifest()
    is_file, recorded = is_tokenizer_file(vocabulary), (manifest.files or {}).get(TOKENIZER)
    if is_file and tokenizer_file.digest(Path(str(vocabulary))) == recorded:
        return
    if manifest.corpus.fingerprint != corpus.fingerprint:
        why = f"the tokenizer of {start.run} was trained on its own text"
        if is_file:
            name = Path(str(vocabulary)).name
            why = f"data.vocabulary={name} is not the tokenizer in the record of {start.run}"
        raise ConfigError(
            f"{why}, and this is another text: leave data out, or begin from a run with data.vocabulary=bytes"
        )
