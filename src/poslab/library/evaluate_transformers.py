"""Measure a causal language model of transformers with the protocols for poslab's own models.

    <runs>/<study>/<name>-<hash>/    manifest.json, extrapolation.csv, position.csv and so on; the hash covers
                                     the settings, the code, the text and the weights

The record is that of a run without training, so the report of its study shows it beside other runs.
"""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from rich import box
from rich.table import Table

from poslab.analysis.by_document import FAMILY, by_document
from poslab.config.installation import typed
from poslab.config.overrides import evaluation_overrides
from poslab.config.request import Config
from poslab.config.schema import MULTIPLES, ConfigError, longest_length, rescaled_by
from poslab.config.text import counted, plain
from poslab.data.cache import prepare
from poslab.data.corpus import Corpus, check_lengths
from poslab.data.tokenizer_file import digest
from poslab.library.composing import compose
from poslab.library.from_transformers import (
    LOGITS,
    TransformersModel,
    open_model,
    read_config,
    tokenizer_path,
    trained_length,
)
from poslab.measures import Row, Trained
from poslab.measures.lengths import Lengths
from poslab.measures.needles import CHANCE, TITLES, Needles
from poslab.measures.position import Position
from poslab.measures.rescaled import Rescaled
from poslab.measures.rescaled_position import RescaledPosition
from poslab.record.frames import frame
from poslab.record.losses import TRAINED
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.measures import multiples, name
from poslab.record.reader import load_run
from poslab.record.schema import FORMAT, METRICS
from poslab.record.writer import RunRecord, now
from poslab.report.formatting import interval, multiple, share
from poslab.report.render.terminal import print_table
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.devices import peak_memory
from poslab.study.launch.machine import size_text
from poslab.study.run.budget import INTERPRETER, TOKENS_A_BATCH, Need, Size, check_memory
from poslab.study.run.facts import gpu_facts, machine_facts
from poslab.study.run.identity import code_fingerprints
from poslab.study.run.plan import resolve

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from poslab.model.gpt import GPT

# Fewer than for a run: a model with 124 M parameters is a hundred times slower than one of a study.
DEFAULTS = ("evaluate.segments=16", "evaluate.sliding_windows=128")
TRAINER = ("max_steps", "batch_size", "accelerator", "precision")
NUMBERS = 1  # part of the identity: raise it if this module computes other numbers
BYTES = 256


def evaluate_transformers(
    model_name: str, settings: Sequence[str], runs: Path, study: str = "hf", lengths: Sequence[int] = ()
) -> Path:
    """Measure the model in a folder or with a name on the hub, and return the folder of its record.

    `settings` are those of an evaluation (`evaluate.segments=4`, `data=NAME`). `lengths` has the length that
    counts as trained, if not that of the configuration, and optionally the longest length. An evaluation
    that was already run is not repeated. Raise a one-line ConfigError if the evaluation cannot work.
    """
    pretrained = read_config(model_name)
    config, tokenizer = _settings(model_name, pretrained, settings, study, lengths)
    size = _size(pretrained, config)
    check_memory(size)
    print(f"needs at least {size_text(INTERPRETER + size.memory)} of memory")
    corpus = prepare(config.data)
    evaluated = longest_length(config), config.evaluate.documents, config.data["held_out"]
    check_lengths(corpus, config.context_length, *evaluated)
    model = open_model(model_name, pretrained, config.trainer.precision, config.context_length)
    model.scheme.check(rescaled_by(config))
    longest = model.scheme.max_length
    if longest is not None and longest < config.context_length:
        raise ConfigError(f"{model_name} has {longest} positions: choose lengths={longest} or less")
    _name_separators(model, corpus, config.evaluate.documents)
    weights = model.digest()
    code = code_fingerprints(config).evaluation
    label = re.sub(r"[^A-Za-z0-9._-]", "-", Path(model_name).resolve().name).lstrip(".-") or "model"
    family = pretrained.model_type
    described = {"scheme": "transformers", "name": label, "family": family, "weights": weights[:8]}
    config = config.model_copy(update={"pos": described, "attention": {"kind": "transformers"}})
    recorded = config.result_settings()
    # Only the training settings that readers of records need: poslab did not train the model.
    recorded["trainer"] = {key: recorded["trainer"][key] for key in TRAINER}
    if tokenizer is not None:  # every file is named tokenizer.json
        recorded["data"]["vocabulary"] = f"tokenizer.json {digest(tokenizer)[:8]}"
    deciding = [NUMBERS, recorded, code, corpus.fingerprint, weights, version("transformers")]
    identity = hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:12]
    directory = runs / study / f"{label}-{identity}"
    finished = read_manifest(directory)
    if finished is not None and finished.status == "done" and not damaged_files(directory, finished.files):
        return directory
    started, began = now(), time.perf_counter()
    tables = _measured(model, config, corpus, RunDisplay(label))
    record = RunRecord(directory)
    record.write_table(METRICS, [])  # there is no training curve
    for schema, rows in tables:
        record.write_table(schema, rows)
    facts = machine_facts()
    if config.trainer.accelerator == "cuda":
        facts |= gpu_facts()
    record.update(
        status="done",
        files=record.files,
        **facts | {"versions": {**facts["versions"], "transformers": version("transformers")}},
        format=FORMAT,
        study=study,
        run=directory.name,
        identity=identity,
        pos=label,
        attention=family,
        seed=0,
        config=recorded,
        code=f"transformers {version('transformers')}",
        code_evaluation=code,
        data=corpus.describe(),
        precision=config.trainer.precision,
        threads=torch.get_num_threads(),
        started=started,
        finished=now(),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        max_length=model.scheme.max_length,
        seconds_evaluation=time.perf_counter() - began,
        memory_bytes=peak_memory(),
    )
    return directory


def show(directory: Path) -> None:
    """Print the record of a model: bits per byte by length and rotation, and the path of the record."""
    run = load_run(directory)
    lengths = multiples([run])
    rows = by_document(run, lengths)
    caption = f"Bits per byte in sliding windows, L = {run.context_length:,} tokens"
    if any(row.get(f"{FAMILY}_{name(k)}_half_width") is not None for row in rows for k in lengths):
        documents = len({part.document for part in run.segments["sliding", 1.0].values()})
        caption += f"; ± half a 95 % interval over {counted(documents, 'document')}"
    caption += ". Below each rotation: its change from the model as trained." if len(rows) > 1 else "."
    table = Table(caption=caption, box=box.SIMPLE_HEAD, caption_justify="left")
    for title in ("rotation", *map(multiple, lengths)):
        table.add_column(title, no_wrap=True, justify="left" if title == "rotation" else "right")
    for row in rows:
        table.add_row(str(row["line"]), *(_interval(row, f"{FAMILY}_{name(k)}", False) for k in lengths))
        if row["rescale"] != TRAINED:
            table.add_row("", *(_interval(row, f"change_{name(k)}", True) for k in lengths))
    print_table(table)
    if run.max_length is not None and run.max_length < max(lengths) * run.context_length:
        print(f"not defined past {run.max_length:,} tokens (its table of positions ends there)")
    if (answers := frame([run], Needles.table)) is not None:
        by_kind = answers.groupby("kind", sort=False)[["right", "samples"]].sum()
        shares = (f"{TITLES[kind].lower()}: {share(n.right / n.samples)} %" for kind, n in by_kind.iterrows())
        print(f"right answers at all lengths and depths ({share(CHANCE)} % by guessing): {'; '.join(shares)}")
    print(f"{plain(run.pos)}, on {plain(run.data_name)}\nrecord: {directory}")
    folder = f" {shlex.quote(f'runs={directory.parents[1]}')}" if directory.parents[1] != Path("runs") else ""
    print(f"to compare it with other models: {typed('report')} study={run.manifest.study}{folder}")


def _interval(row: Mapping[str, Any], key: str, sign: bool) -> str:
    return interval(row.get(f"{key}_mean"), row.get(f"{key}_half_width"), 3 if sign else 4, sign)


def _settings(
    model_name: str,
    pretrained: "PretrainedConfig",
    settings: Sequence[str],
    study: str,
    lengths: Sequence[int],
) -> tuple[Config, Path | None]:
    """Return the configuration of an evaluation, and the tokenizer's file (None if tokens are bytes)."""
    evaluation_overrides(settings)  # refuses what cannot be set for an evaluation
    keys = {setting.partition("=")[0] for setting in settings}
    if trackers := [key for key in keys if key.startswith("logger")]:
        raise ConfigError(f"{min(trackers)}: an evaluation of hf= has only a local record: leave it out")
    if "data.vocabulary" in keys:
        raise ConfigError("data.vocabulary: a model of hf= uses its own tokenizer: leave it out")
    text = pretrained.get_text_config()
    tokenizer = tokenizer_path(model_name)
    if tokenizer is None and text.vocab_size < BYTES:
        raise ConfigError(f"hf={plain(model_name)} has no tokenizer, and too small a vocabulary for bytes")
    chosen = [default for default in DEFAULTS if default.partition("=")[0] not in keys]
    length = lengths[0] if lengths else trained_length(pretrained)
    if lengths[1:]:
        if "evaluate.longest" in keys:
            raise ConfigError("lengths= already names the longest length: leave evaluate.longest out")
        chosen.append(f"evaluate.longest={_multiple(length, lengths[-1])}")
    heads = getattr(text, "num_attention_heads", None) or 1
    request = compose(
        *("pos=none", "attention=flash", "logger=local", f"study={study}", f"context_length={length}"),
        *(f"model.layers={text.num_hidden_layers}", f"model.heads={heads}"),
        f"model.width={-(-text.hidden_size // heads) * heads}",
        *("trainer.max_steps=1", "trainer.batch_size=1"),
        *chosen,
        *settings,
        f"data.vocabulary='{tokenizer or 'bytes'}'",
    )
    return resolve(request.config), tokenizer


def _multiple(length: int, longest: int) -> int:
    if longest % length or longest // length not in MULTIPLES:
        choices = ", ".join(map(str, MULTIPLES))
        raise ConfigError(f"lengths={length},{longest}: the second must be the first times one of {choices}")
    return longest // length


def _size(pretrained: "PretrainedConfig", config: Config) -> Size:
    """Return the memory that an evaluation needs at least."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(pretrained)
    number = 2 if config.trainer.precision == "bfloat16" else 4
    tokens = max(TOKENS_A_BATCH, longest_length(config))
    needs = [
        Need(number * sum(weight.numel() for weight in model.parameters()), "weights", "trainer.precision"),
        Need(9 * number * tokens * config.model.width, "a window", "evaluate.longest or lengths"),
        Need(3 * 4 * LOGITS, "logits", "lengths"),
    ]
    if not model._supports_sdpa and getattr(pretrained.get_text_config(), "num_attention_heads", None):
        square = tokens // longest_length(config) * longest_length(config) ** 2
        weights = 8 * config.model.heads * square
        needs.append(Need(weights, "attention weights", "evaluate.longest or lengths"))
    return Size(tuple(needs), config.trainer.accelerator == "cuda")


def _name_separators(model: TransformersModel, corpus: Corpus, documents: str) -> None:
    """Let the model read its own end-of-text token between documents. Raise ConfigError if it cannot."""
    config = model.model.config.get_text_config()
    ends = config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    if corpus.vocabulary <= BYTES:
        return
    if corpus.separator > config.vocab_size:  # the separator is the first token after the tokenizer's own
        raise ConfigError(
            f"its tokenizer has {corpus.separator:,} tokens, but the model only {config.vocab_size:,}"
        )
    if end is not None and end < config.vocab_size:
        model.separators = corpus.separator, end
    elif corpus.vocabulary > config.vocab_size and documents == "joined":
        raise ConfigError(
            "the model has no end-of-text token to put between documents: choose evaluate.documents=single"
        )


def _measured(
    model: TransformersModel, config: Config, corpus: Corpus, display: RunDisplay
) -> list[tuple[Any, list[Row]]]:
    """Return the tables of a record, each with its rows."""
    gpt = cast("GPT", model)  # it provides what these measurements use
    trained = Trained(gpt, config, corpus, display, lambda: None)
    measured = Needles(), Lengths(), Position(), Rescaled(), RescaledPosition()  # the first may refuse
    return [(kind.table, list(kind.measure(trained))) for kind in measured if kind.wanted(config)]
