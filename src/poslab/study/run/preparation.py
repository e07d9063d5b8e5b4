"""Work that the runs of a command share: each text, fingerprint and check is computed only once.

Whether the parts of a run fit together is checked by building them (parts.py), which needs PyTorch. The
outcome is cached across commands, by the settings, the code and the versions that decide it, so that a
command imports no PyTorch if all of its runs are finished.
"""

import hashlib
import json
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from poslab.config.request import Config
from poslab.config.schema import PairError, RunConfig
from poslab.data.directories import planning_directory
from poslab.record.remembered import Remembered
from poslab.study.launch.machine import lacks_memory, machine_memory, size_text
from poslab.study.run.budget import BudgetError, Size, entries, size_of
from poslab.study.run.facts import describe_versions
from poslab.study.run.identity import part_modules, source_fingerprint

Result = TypeVar("Result")

PARTS = ("context_length", "pos", "attention", "objective", "model", "evaluate")  # and the vocabulary
OUTCOMES = 1000  # the number of cached outcomes


class Preparation:
    """Results that the requests of a command share: code, texts and folders are read only once."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the result for `key`; call `compute` for it the first time."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]


def checked(config: Config, preparation: Preparation, trained: bool = False) -> tuple[Config, Size]:
    """Return a resolved configuration with its parts' options checked and in a normal form: 500.0 for 500.

    Return also its size; with `trained`, only that of the evaluation. Before any data is read, raise
    PairError if scheme and attention do not fit together, and ConfigError if other parts do not.
    """
    path = planning_directory() / "parts.json"
    outcomes = preparation.once(path, lambda: Remembered(path, OUTCOMES))
    key = _key(config, preparation)
    outcome = None if key is None else outcomes.get(key)
    if outcome is None:
        outcome = _outcome(config)
        if key is not None:
            outcomes.put(key, outcome)
            outcomes.save()
    if "refused" in outcome:
        raise PairError(outcome["refused"])
    parts = {name: outcome[name] for name in ("pos", "attention", "objective")}
    size = size_of(config, outcome["parameters"], outcome["max_length"], trained)
    return config.model_copy(update=parts), size


def _key(config: Config, preparation: Preparation) -> str | None:
    """Return a key for all that decides the outcome of a check; None if a part has no module."""
    modules = ("poslab.study.run.parts", *part_modules(config))
    try:
        code = preparation.once(modules, lambda: source_fingerprint(modules))
    except FileNotFoundError:
        return None
    settings = config.model_dump(mode="json", include=set(PARTS))
    text = json.dumps([code, describe_versions(), settings, entries(config)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _outcome(config: Config) -> dict[str, Any]:
    """Return the outcome of a check in JSON's types; a PairError is an outcome. Raise other ConfigErrors."""
    from poslab.study.run.parts import check_parts

    # The other fields are left out, so that they cannot have an effect.
    reduced = RunConfig.model_construct(**{name: getattr(config, name) for name in PARTS})
    try:
        outcome: dict[str, Any] = json.loads(json.dumps(check_parts(reduced, entries(config))))
    except PairError as error:
        return {"refused": str(error)}
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise BudgetError(
            "the positional scheme and the attention take more memory than is available "
            f"({size_text(machine_memory().bytes)}): lower the numbers of pos and attention"
        ) from None
    return outcome
