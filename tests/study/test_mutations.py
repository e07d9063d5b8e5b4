"""Every file that any command reads, changed: it is named, or what is shown is as it was; never silent.

Bits and ends of files, files of other runs in their place, files besides, files of other formats: in the
short form some fifty changes, over all files and kinds; in the long one (-m study) a thousand.
"""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from support import world
from support.mutations import KINDS, Target, may_be_without_effect, mutate, targets, verdict


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "world"
    world.build(root)
    return root


@pytest.fixture(scope="module")
def sound(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[world.Reader, world.Seen]:
    """What each command makes of the world as it is; each needs a copy, since some change it."""
    found = {}
    for reader in {reader for target in targets(whole) for reader in target.readers}:
        root = world.copied(whole, tmp_path_factory.mktemp("sound") / "world")
        found[reader] = world.seen(reader, root)
        shutil.rmtree(root)
    return found


def changed(
    target: Target, kind: str, whole: Path, folder: Path, sound: dict[world.Reader, world.Seen], seed: int
) -> list[str]:
    """What becomes of one change under each command that reads the file; nothing where none was made."""
    verdicts = []
    for reader in target.readers:
        root = world.copied(whole, folder / "world")
        if path := mutate(target, kind, root, random.Random(seed)):
            now = world.seen(reader, root)
            found = verdict(target, path, sound[reader], now)
            if found == "without effect" and not may_be_without_effect(target, kind):
                found = "not named"
            if found not in ("named", "without effect"):
                found = f"{kind} of {target.path}, seed {seed}, {reader.__name__}: {found}; {now.said!r}"
            verdicts.append(found)
        shutil.rmtree(root)
    return verdicts


def test_what_is_changed_is_named(whole: Path, tmp_path: Path, sound: dict[world.Reader, world.Seen]) -> None:
    """Every file twice, but for an evaluation's tables, which are all read by the same lines."""
    files = targets(whole)
    tables = [each for each in files if each.path.parts[0] == "evaluations" and each.path.suffix == ".csv"]
    found: Counter[str] = Counter()
    for number, target in enumerate(each for each in files if each not in tables[1:]):
        for kind in (KINDS[number % 6], KINDS[(number + 3) % 6]):
            found.update(changed(target, kind, whole, tmp_path, sound, number))
    assert found.keys() == {"named", "without effect"}
    assert found.total() >= 60
    assert found["named"] >= 40


@pytest.mark.study
def test_a_thousand_changes_are_named(
    whole: Path, tmp_path: Path, sound: dict[world.Reader, world.Seen]
) -> None:
    """Every kind of change of every file, then bits and ends, which differ each time."""
    files = targets(whole)
    cases = [(target, kind) for kind in KINDS for target in files]
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    number = 0
    while sum(count.total() for count in found.values()) < 1000:
        if number == len(cases):
            cases += [(target, kind) for kind in ("bit", "end") for target in files]
        target, kind = cases[number]
        found[kind].update(changed(target, kind, whole, tmp_path, sound, number))
        number += 1
    print({kind: dict(count) for kind, count in found.items()})
    assert set().union(*found.values()) == {"named", "without effect"}
