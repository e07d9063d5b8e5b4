"""Every arm trains to the stored losses, which refactoring must not change.

Whether the stored losses are right is tested elsewhere, formula by formula. If a change is meant to
change them, `PYTHONPATH=tests python -m support.golden > tests/golden/losses.csv` writes them again.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from poslab.measures import measurements
from poslab.record import facts
from poslab.study.run import identity
from poslab.study.run.identity import Code, code_fingerprints
from support import golden
from support.golden import Name, alike, losses, names, stored
from support.models import SCHEMES, each_scheme_once

STORED = stored()
# Each scheme once, with all attentions in turn, and every other change; the rest with `-m study`.
BY_TURNS = each_scheme_once([name for name in STORED if not name[2] and name[0] in SCHEMES])
CASES = [
    name if name in BY_TURNS or name[2] else pytest.param(name, marks=pytest.mark.study) for name in STORED
]


def test_every_arm_has_stored_losses() -> None:
    assert list(STORED) == names()


@pytest.mark.parametrize("name", CASES, ids=lambda name: "-".join(filter(None, name)))
def test_an_arm_trains_to_the_stored_losses(name: Name) -> None:
    found, expected = losses(name), STORED[name]
    assert alike(found, expected), {key: (found.get(key), value) for key, value in expected.items()}


@pytest.mark.parametrize("model", golden.MEASURED)
def test_measurements_of_a_model_are_the_stored_ones(model: str) -> None:
    found, expected = golden.tables(model), golden.stored_tables()[model]
    assert alike(found, expected), {key: (found.get(key), value) for key, value in expected.items()}


def test_every_measurement_has_a_stored_table() -> None:
    measured = {column.split()[0] for columns in golden.stored_tables().values() for column in columns}
    assert measured == {measurement.name for measurement in measurements()}


def test_code_is_accepted_only_if_it_trains_to_the_stored_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code counts as earlier code if both give the stored losses and tables, and otherwise as itself."""
    rows = {name: STORED[name] for name in [("rope", "flash", "")]}
    tables = {"biases": golden.stored_tables()["biases"]}
    monkeypatch.setattr(golden, "stored", lambda: rows)
    monkeypatch.setattr(golden, "stored_tables", lambda: tables)
    for module in (golden, facts):
        monkeypatch.setattr(module, "RECIPES", tmp_path / "recipes.json")
    (tmp_path / "recipes.json").write_text("{}")

    def accepted(own: str, trained: float = 1.0, measured: float = 1.0) -> tuple[Code, int, Code]:
        """Return what code with this fingerprint counts as before `accept`, its status, and after it."""
        code = Code(own, "p", f"{own} measured")
        for module in (golden, identity):
            monkeypatch.setattr(module, "own_fingerprints", lambda config: code)
        monkeypatch.setattr(golden, "losses", lambda name: times(rows[name], trained))
        monkeypatch.setattr(golden, "tables", lambda model: times(tables[model], measured))
        facts._recipes.cache_clear()
        before, status = code_fingerprints(config), golden.accept()
        facts._recipes.cache_clear()
        return before, status, code_fingerprints(config)

    config = golden.config_of(("rope", "flash", ""))
    _, status, first = accepted("first")
    assert status == 0
    before, status, rewritten = accepted("rewritten")
    assert (before.shared, status, rewritten) == ("rewritten", 0, first)
    for own, change in (("measures", {"measured": 1.01}), ("another", {"trained": 1.01})):
        _, status, code = accepted(own, **change)
        assert (status, code.shared, code.evaluation) == (1, own, f"{own} measured")
    # Accepted with its own losses, it still does not count as code that trained to others.
    rows |= {name: times(losses, 1.01) for name, losses in rows.items()}
    _, status, code = accepted("another")
    assert (status, code.shared) == (0, "another")
    facts._recipes.cache_clear()


def times(values: Mapping[str, float], factor: float) -> dict[str, float]:
    return {key: factor * value for key, value in values.items()}
