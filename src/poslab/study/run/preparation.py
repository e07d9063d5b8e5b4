"""Work that the runs of one command share: each text, fingerprint and check is done once.

Whether the parts of a run fit together is checked by building them (parts.py), which needs PyTorch. The
outcome is cached from one command to the next, by the settings, the code and the versions that decide it, so
that a command with only finished runs imports no PyTorch.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from poslab.config.request import Config
from poslab.config.schema import PairError, RunConfig
from poslab.data.cache import prepare
from poslab.data.corpus import Corpus
from poslab.data.directories import planning_directory
from poslab.record.remembered import Remembered
from poslab.study.launch.machine import lacks_memory, machine_memory, size_text
from poslab.study.run.budget import BudgetError, Size, entries, size_of
from poslab.study.run.facts import describe_versions, machine_facts
from poslab.study.run.identity import (
    Code,
    code_fingerprints,
    part_modules,
    source_fingerprint,
)

PARTS = ("context_length", "pos", "attention", "objective", "model", "evaluate")  # and the vocabulary decide
OUTCOMES = 1000  # that are cached


class Preparation:
    """Shared by the requests of one command, which use the code, texts and folders as first read."""

    def __init__(self) -> None:
        self._corpora: dict[str, Corpus] = {}
        self._codes: dict[tuple[str, ...], Code] = {}
        self._code_keys: dict[tuple[str, ...], str | None] = {}
        self._names: dict[Path, dict[str, str]] = {}
        self._outcomes = Remembered(planning_directory() / "parts.json", OUTCOMES)

    def corpus(self, data: Mapping[str, Any]) -> Corpus:
        """Return the text that the section `data` describes. Raises ConfigError."""
        key = json.dumps(data, sort_keys=True)
        if key not in self._corpora:
            self._corpora[key] = prepare(data)
        return self._corpora[key]

    def code(self, config: RunConfig) -> Code:
        """Return the fingerprints of the code that a run depends on."""
        modules = part_modules(config)
        if modules not in self._codes:
            self._codes[modules] = code_fingerprints(config)
        return self._codes[modules]

    @cached_property
    def machine(self) -> Mapping[str, Any]:
        """The facts for records about this machine, without its GPUs, and the software on it."""
        return machine_facts()

    def checked(self, config: Config, trained: bool = False) -> tuple[Config, Size]:
        """Return a resolved configuration with its parts' options checked and in one form: 500.0 for 500.

        Return also its size; `trained`: only that of the evaluation. Raises ConfigError, before any data is
        read, where the parts do not fit together, PairError where scheme and attention do not.
        """
        key = self._key(config)
        outcome = None if key is None else self._outcomes.get(key)
        if outcome is None:
            outcome = _outcome(config)
            if key is not None:
                self._outcomes.put(key, outcome)
                self._outcomes.save()
        if "refused" in outcome:
            raise PairError(outcome["refused"])
        parts = {name: outcome[name] for name in ("pos", "attention", "objective")}
        checked = config.model_copy(update=parts)
        return checked, size_of(config, outcome["parameters"], outcome["max_length"], trained)

    def directory_name(self, study: Path, identity: str) -> str | None:
        """Return the directory of the run with this identity in a study, None where it has none."""
        if study not in self._names:
            try:
                names = sorted(os.listdir(study), reverse=True)  # the first of a run's directories counts
            except OSError:  # it has none yet
                names = []
            self._names[study] = {name.rpartition("-")[2]: name for name in names if "-" in name}
        return self._names[study].get(identity)

    def _key(self, config: Config) -> str | None:
        """Return a key of all that decides a check's outcome; None where a part has no module."""
        modules = part_modules(config)
        if modules not in self._code_keys:
            self._code_keys[modules] = None
            with suppress(FileNotFoundError):
                self._code_keys[modules] = source_fingerprint(["poslab.study.run.parts", *modules])
        code = self._code_keys[modules]
        if code is None:
            return None
        settings = config.model_dump(mode="json", include=set(PARTS))
        decides = json.dumps([code, describe_versions(), settings, entries(config)], sort_keys=True)
        return hashlib.sha256(decides.encode()).hexdigest()


def _outcome(config: Config) -> dict[str, Any]:
    """Return a check's outcome as JSON has it; PairError is an outcome, other ConfigErrors are raised."""
    from poslab.study.run.parts import check_parts

    # The other fields are missing, so that they cannot decide anything.
    named = RunConfig.model_construct(**{name: getattr(config, name) for name in PARTS})
    try:
        outcome: dict[str, Any] = json.loads(json.dumps(check_parts(named, entries(config))))
    except PairError as error:
        return {"refused": str(error)}
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise BudgetError(
            "the positional scheme and the attention take more memory than there is "
            f"({size_text(machine_memory().bytes)}): lower their numbers"
        ) from None
    return outcome
