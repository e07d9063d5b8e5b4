"""Every arm trains to the losses that are stored: what a rewriting of the code must not change.

The stored ones are right only as far as other tests say that the formulas are. Where a change is meant to
change them, `PYTHONPATH=tests python -m support.golden > tests/golden/losses.csv` writes them again.
"""

from functools import cache
from pathlib import Path

import pytest

from poslab.measures import measurements, repeated_text
from poslab.record import facts
from poslab.study.run import identity
from poslab.study.run.identity import Code, code_fingerprints
from poslab.training import module as module_of_training
from support import golden
from support.golden import Name, alike, losses, names, stored
from support.models import OTHER_BASES, each_scheme_once

STORED = stored()
# Each scheme's settings once, but for RoPE with other bases, with all attentions by turns, and every other
# change; the rest with `-m study`.
BY_TURNS = each_scheme_once([name for name in STORED if not name[2] and name[0] not in OTHER_BASES])
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
def test_what_is_measured_in_a_model_is_what_is_stored(model: str) -> None:
    found, expected = golden.tables(model), golden.stored_tables()[model]
    assert alike(found, expected), {key: (found.get(key), value) for key, value in expected.items()}


def test_every_measurement_has_a_stored_table() -> None:
    measured = {column.split()[0] for columns in golden.stored_tables().values() for column in columns}
    assert measured == {measurement.name for measurement in measurements()}


def test_code_is_accepted_only_where_it_trains_to_the_stored_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rewritten code, and of a constant that has changed, with a fingerprint of its own each."""
    rows = {name: STORED[name] for name in STORED if name == ("rope", "flash", "")}
    tables = {"biases": golden.stored_tables()["biases"]}
    found = {name: cache(getattr(golden, name)) for name in ("losses", "tables")}  # by the code as it is
    for name, function in found.items():
        monkeypatch.setattr(golden, name, function)
    monkeypatch.setattr(golden, "stored", lambda: rows)
    monkeypatch.setattr(golden, "stored_tables", lambda: tables)
    for module in (golden, facts):
        monkeypatch.setattr(module, "RECIPES", tmp_path / "recipes.json")
    config = golden.config_of(("rope", "flash", ""))

    def code(shared: str) -> Code:
        """The code's fingerprints, as if its own were these."""
        own = Code(shared, "p", f"{shared} measured")
        for module in (golden, identity):
            monkeypatch.setattr(module, "own_fingerprints", lambda config: own)
        facts._recipes.cache_clear()
        return code_fingerprints(config)

    (tmp_path / "recipes.json").write_text("{}")
    code("first")
    assert golden.accept() == 0
    assert code("rewritten").shared == "rewritten"  # until it is accepted
    assert golden.accept() == 0
    assert code("rewritten") == code("first")
    with monkeypatch.context() as changed:  # what is measured, not how the model is trained
        changed.setattr(repeated_text, "CUE", 9)
        found["tables"].cache_clear()
        code("measures")
        assert golden.accept() == 1
    assert code("measures").evaluation == "measures measured"
    monkeypatch.setattr(module_of_training, "FINAL_SHARE", 0.11)
    for function in found.values():
        function.cache_clear()
    code("another")
    assert golden.accept() == 1
    assert code("another").shared == "another"
    # Accepted with losses of its own, it still is no code that trained to others.
    rows |= {name: golden.losses(name) for name in rows}
    tables["biases"] = golden.tables("biases")
    assert golden.accept() == 0
    assert code("another").shared == "another"
    facts._recipes.cache_clear()
