"""The losses of eight training steps of every arm, which refactored code must reproduce (tests/golden).

    PYTHONPATH=tests python -m support.golden > tests/golden/losses.csv
    PYTHONPATH=tests python -m support.golden tables > tests/golden/tables.csv

write the stored losses and the measurements of a few trained models again, and

    PYTHONPATH=tests python -m support.golden accept

accepts the current code as equal to the code that it replaced, so that finished runs stay valid: if every arm
trains to the stored losses, and for the code of measurements if it gives the stored tables.

Each loss is in full precision, so that two versions of the code can be compared to the bit on one machine: by
`diff` between what this prints of one and of the other. On another machine they are nearly equal. GPT-2's
small weights attend to all tokens nearly alike, so the learning rate is high enough to tell in eight steps
one scheme from another, and low enough not to magnify rounding: a tenth for mixers without attention, whose
losses at the same rate differ by up to 9e-4 between AVX-512 and SSE.
"""

import csv
import hashlib
import itertools
import json
import math
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import torch

from poslab.config.compose import arms
from poslab.config.registry import find
from poslab.config.request import Config
from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.evaluation.extrapolation import evaluate, rescalings
from poslab.measures import Trained, wanted
from poslab.model.attention import Attention, Mixer
from poslab.model.gpt import build, build_parts
from poslab.model.positions import Geometry, build_scheme
from poslab.record.facts import RECIPES
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.identity import own_fingerprints
from poslab.study.run.plan import resolve
from poslab.training.loop import train, without_positions
from support.commands import ROOT
from support.models import ATTENTIONS, CONF, POSITIONS, SCHEMES
from support.runs import Told, request

FILE = ROOT / "tests" / "golden" / "losses.csv"
STEPS = 8
# In float32 on one thread AVX-512, AVX2 and SSE differ by up to 5e-6 in a loss, by 2.1e-5 in a norm (CoPE).
TOLERANCE = 2e-5
NORM, TOLERANCE_OF_NORM = "gradient_norm", 6e-5  # of the last step, before clipping
PROBE, TOLERANCE_OF_PROBE = "position_probe", 5e-4  # a regression on many nearly equal columns
LENGTHS = ("1", "2")  # multiples of L
PROTOCOLS = ("non_overlapping", "sliding")
VALUES = (
    *(f"loss_{step}" for step in range(1, STEPS + 1)),  # nats per token, of the batch before the step
    NORM,
    # Summed nats of the trained model on the scored targets; empty if the scheme is not defined there.
    *(f"{protocol}_{multiple}x" for protocol in PROTOCOLS for multiple in LENGTHS),
)
COLUMNS = ("pos", "attention", "change", *VALUES)
# Starts and windows that follow L are those of L = 128, so that stored losses do not depend on SMALL.
AT_THE_DEFAULT_LENGTH = Geometry(128, 4, 128, layers=4)
Name = tuple[str, str, str]  # pos=, attention= and the further change, "" for none

SMALL: dict[str, Any] = {
    "context_length": 80,  # more than one block of queries
    "trainer__max_steps": STEPS,
    "trainer__batch_size": 2,
    "trainer__warmup_steps": 2,
    "trainer__learning_rate": 2e-2,
    "trainer__precision": "float32",
    "evaluate__validations": STEPS,  # each has a row with the loss since the one before
    "evaluate__validation_windows": 1,
    "evaluate__longest": 2,
    "evaluate__segments": 2,
    "evaluate__sliding_windows": 4,
}
TABLES = FILE.with_name("tables.csv")
MEASURED: dict[str, dict[str, Any]] = {  # by what is measured in them in addition to the losses
    "questions": {
        "probe": arms(CONF / "probe")["retrieval"],
        "context_length": 160,
        "evaluate__needles": 4,
    },
    "rescaled": {"evaluate__rescale": ["none", "ntk", "drop"], "evaluate__recalibration_steps": 2},
    "biases": {"pos": POSITIONS["t5"], "evaluate__documents": "joined"},
    "denominators": {"attention": ATTENTIONS["linear"]},
    "masked": {
        "objective": arms(CONF / "objective")["masked"],
        "context_length": 160,
        "evaluate__needles": 4,
    },
    "task": {
        "data": {**arms(CONF / "data")["none"]},
        "objective": arms(CONF / "task")["copy"]["objective"],
        "context_length": 13,
    },
}

CHANGES: dict[str, dict[str, Any]] = {
    "accumulate": {"trainer__accumulate": 2},
    "constant": {"trainer__schedule": "constant"},
    "wsd": {"trainer__schedule": "wsd"},
    "interleaved": {"pos": {**POSITIONS["rope"], "pairing": "interleaved"}},
    "questions": {"probe": arms(CONF / "probe")["retrieval"]},
    **{
        name: {"evaluate__rescale": ["none", name], "evaluate__rescale_factor": 2.0}
        for name in ("pi", "ntk", "yarn")
    },
    "dynamic": {"evaluate__rescale": ["none", "dynamic"]},
    "recalibrated": {"evaluate__rescale": ["none", "drop"], "evaluate__recalibration_steps": 4},
}


def config_of(name: Name) -> Config:
    """Return a model with two layers, or enough for a schedule to reach all of its schemes."""
    pos, attention, change = name
    kind = find(ATTENTIONS[attention]["kind"], Mixer, "poslab.model.attention", "attention.kind")
    settings: dict[str, Any] = {
        **SMALL,
        "pos": build_scheme(POSITIONS[pos], AT_THE_DEFAULT_LENGTH).section(),
        "attention": ATTENTIONS[attention],
        "model__layers": 4 if POSITIONS[pos]["scheme"] == "schedule" or attention == "hybrid" else 2,
        "trainer__learning_rate": 2e-2 if issubclass(kind, Attention) else 2e-3,
    }
    return request(**{**settings, **CHANGES.get(change, {})}).config


def names() -> list[Name]:
    """Return every file of conf/pos with every attention that works with it, then the changes under RoPE.

    Mixers without attention occur with one file of each scheme.
    """
    found = []
    for pos, attention in itertools.product(POSITIONS, ATTENTIONS):
        try:
            _, _, mixers = build_parts(config_of((pos, attention, "")))
        except ConfigError:
            continue
        if pos not in SCHEMES and not all(isinstance(mixer, Attention) for mixer in mixers):
            continue
        found.append((pos, attention, ""))
    return [*found, *(("rope", "flash", change) for change in CHANGES)]


def tables(model: str) -> dict[str, float]:
    """Return the measurements of a model of MEASURED: a sum over each column of every table.

    Each number, or checksum of a text, is multiplied by its row number; keys include the number of rows.
    """
    config = resolve(request(**{**SMALL, "evaluate__segments": 4, **MEASURED[model]}).config)
    corpus = prepare(config.data)
    gpt = build(config, corpus.vocabulary)
    train(gpt, config, corpus, Told())
    display = RunDisplay(model, quiet=True)
    trained = Trained(gpt, config, corpus, display, lambda: without_positions(gpt, config, corpus, Told()))
    found = {}
    for measurement in wanted(config):
        rows = [*(measurement.measure(trained) or ())]
        for column in rows[0] if rows else ():
            numbers = [_number(row[column]) * count for count, row in enumerate(rows, 1)]
            found[f"{measurement.name} {column} {len(rows)}"] = math.fsum(numbers)
    return found


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else zlib.crc32(str(value).encode()) / 2**32


def losses(name: Name) -> dict[str, float]:
    """Train in this process and return VALUES, without those that are not defined."""
    config, told = config_of(name), Told()
    corpus = prepare(config.data)
    gpt = build(config, corpus.vocabulary)
    train(gpt, config, corpus, told)
    values = {f"loss_{row['step']}": row["train_nll"] / row["train_tokens"] for row in told.rows}
    values[NORM] = told.rows[-1]["gradient_norm"]
    if config.evaluate.recalibration_steps:
        gpt = without_positions(gpt, config, corpus, Told())
    rescaling = next(iter(rescalings(config)), None)
    for row in evaluate(gpt, config, corpus, rescaling=rescaling).lengths:
        if row["protocol"] in PROTOCOLS and row["multiple"] in LENGTHS:
            column = f"{row['protocol']}_{row['multiple']}x"
            values[column] = values.get(column, 0.0) + row["nll"]
    return values


def stored() -> dict[Name, dict[str, float]]:
    with FILE.open(newline="") as file:
        return {
            (row["pos"], row["attention"], row["change"]): {
                key: float(row[key]) for key in VALUES if row[key]
            }
            for row in csv.DictReader(file)
        }


def stored_tables() -> dict[str, dict[str, float]]:
    """Return the stored result of `tables` for each model of MEASURED."""
    table = pd.read_csv(TABLES)
    return {str(model): dict(zip(of.column, of["sum"], strict=True)) for model, of in table.groupby("model")}


def write(rows: Iterable[tuple[Name, Mapping[str, float]]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, values in rows:
        writer.writerow([*name, *(values.get(key, "") for key in VALUES)])


def alike(found: Mapping[str, float], expected: Mapping[str, float]) -> bool:
    """Return whether losses or tables are equal up to the rounding of other instruction sets."""
    tolerances = {NORM: TOLERANCE_OF_NORM, PROBE: TOLERANCE_OF_PROBE}
    return found.keys() == expected.keys() and all(
        math.isclose(found[key], value, rel_tol=tolerances.get(key.partition(" ")[0], TOLERANCE))
        for key, value in expected.items()
    )


def accept() -> int:
    """List the current fingerprints in recipes.json with those of code that trained to the same losses.

    Nothing is listed if an arm trains to other losses, or a model has other tables. After stored losses or
    tables were written again, code is listed in a new group: it never joins code that gave others.
    """
    rows, measured = stored(), stored_tables()
    if differing := [name for name, expected in rows.items() if not alike(losses(name), expected)]:
        print(f"not accepted: {len(differing)} arms train to other losses, such as {differing[0]}")
        return 1
    if other := [model for model, expected in measured.items() if not alike(tables(model), expected)]:
        print(f"not accepted: other tables are measured in the models of {', '.join(other)}")
        return 1
    trained: dict[str, list[object]] = {}
    for name, values in rows.items():
        code = own_fingerprints(config_of(name))
        trained.setdefault(code.parts, []).append((name, values))
        if name[:2] == ("rope", "flash"):  # so that another scheme's rows do not tell shared code apart
            trained.setdefault(code.shared, []).append((name, values))
            trained[code.evaluation] = [measured]
    recipes: dict[str, list[str]] = json.loads(RECIPES.read_text()) if RECIPES.exists() else {}
    known = {fingerprint for group in recipes.values() for fingerprint in group}
    for fingerprint in trained.keys() - known:
        by = hashlib.sha256(repr(trained[fingerprint]).encode()).hexdigest()[:16]
        recipes.setdefault(by, []).append(fingerprint)
    RECIPES.write_text(f"{json.dumps(recipes, indent=1, sort_keys=True)}\n")
    print(f"accepted: {len(trained.keys() - known)} of {len(trained)} fingerprints are new")
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["accept"]:
        sys.exit(accept())
    if sys.argv[1:] == ["tables"]:
        found = {model: pd.Series(tables(model), name="sum") for model in MEASURED}
        pd.concat(found, names=["model", "column"]).to_csv(sys.stdout)
        sys.exit()
    write((name, losses(name)) for name in names())
