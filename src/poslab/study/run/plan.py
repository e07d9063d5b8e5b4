"""From a request to a run that can be made: all checked, named by what decides its result, placed."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from poslab.config.request import Config, Request
from poslab.config.schema import FACTOR_METHODS, ConfigError
from poslab.data.cache import prepare
from poslab.data.corpus import Corpus
from poslab.data.questions import ROOM
from poslab.data.windows import check_lengths
from poslab.evaluation.extrapolation import changes_rotation, longest_length, rescalings
from poslab.model.attention import PairError
from poslab.model.gpt import build_parts
from poslab.model.rescaling import METHODS
from poslab.record.files import DamagedError
from poslab.record.manifest import OtherFormatError, damaged_files, read_manifest
from poslab.record.schema import ENDED, FORMAT
from poslab.record.writer import RunRecord
from poslab.study.run.identity import Code, code_fingerprints, run_identity, run_name
from poslab.tracking.send.card import Card, of_run

LONGEST = {"cpu": 8, "cuda": 16}  # what evaluate.longest=auto means


@dataclass(frozen=True)
class Standing:
    """How a run stands, as its record says."""

    status: str | None  # None where there is no record yet; older or newer: of a format that is not read
    reason: str | None = None
    damage: tuple[str, ...] = ()  # a line for each file that is not as it was written
    outdated: bool = False  # whether its trained model was measured by other code than today's

    @property
    def settled(self) -> bool:
        """Whether making it again would give the same again: done, or diverged."""
        return self.status in ENDED and not self.damage and not self.outdated


@dataclass(frozen=True)
class Job:
    """A run that can be made: all checked, data prepared, place known."""

    request: Request
    config: Config  # without `auto`
    corpus: Corpus
    code: Code
    identity: str
    directory: Path

    @property
    def title(self) -> str:
        return title(self.request)

    @property
    def card(self) -> Card:
        """How the run is shown in W&B."""
        return of_run(self.request, self.title, self.identity, self.code.shared, self.corpus.fingerprint)

    @property
    def standing(self) -> Standing:
        """How the run stands now. Reads its files."""
        try:
            manifest = read_manifest(self.directory)
        except OtherFormatError as error:
            return Standing(error.status, error.reason)
        except DamagedError as error:
            return Standing(None, damage=(str(error),))
        if manifest is None:
            return Standing(None)
        standing = Standing(manifest.status, manifest.reason)
        if not standing.settled:  # its files are not looked at: it is made, or goes on, from its checkpoints
            return standing
        damaged = damaged_files(self.directory, manifest.files)
        other = manifest.code_evaluation != self.code.evaluation
        standing = replace(standing, outdated=standing.status == "done" and other)
        return replace(standing, damage=tuple(f"{self.directory / name} is damaged" for name in damaged))

    @property
    def settled(self) -> bool:
        return self.standing.settled


def title(request: Request) -> str:
    """What the terminal calls a run."""
    config = request.config
    rate = f"rate {config.trainer.learning_rate:g}" if config.part == "tuning" else ""
    parts = (request.pos, request.attention, request.distinguishing_label, rate, f"seed {config.seed}")
    return " / ".join(part for part in parts if part)


def plan(request: Request, runs: Path, here: bool = True, corpora: dict[str, Corpus] | None = None) -> Job:
    """Check the request and prepare its data. Raises ConfigError, with one line, for all that cannot work.

    `here` says whether the run will be made on this machine; `corpora` keeps what was prepared, for requests
    of one command.
    """
    config = _spelled_out(resolve(request.config, here))
    data = json.dumps(config.data, sort_keys=True)
    corpora = {} if corpora is None else corpora
    corpus = corpora[data] = corpora.get(data) or prepare(config.data)
    if config.part == "tuning":
        corpus = corpus.for_tuning()
    if config.probe.tasks:
        _check_probe(config)
    check_lengths(corpus, config.context_length, longest_length(config))
    code = code_fingerprints(config)
    identity = run_identity(config, code, corpus.fingerprint)
    study = runs / config.study
    # The same run may have been asked for by another name: pos=rope_500, or pos=rope pos.base=500.
    known = sorted(study.glob(f"*-{identity}"))
    directory = (
        known[0] if known else study / run_name((request.pos, request.attention), config.seed, identity)
    )
    return Job(request, config, corpus, code, identity, directory)


def _check_probe(config: Config) -> None:
    """Raise ConfigError where the probe's questions cannot be put into the run's windows."""
    if config.data.get("vocabulary") != "bytes":
        raise ConfigError("probe asks its questions in bytes: choose data.vocabulary=bytes, or probe=none")
    shortest = config.context_length // 2
    if shortest + 1 < ROOM:
        raise ConfigError(
            f"context_length={config.context_length} is too short for the probe, whose questions take {ROOM} "
            f"of L/2 + 1 tokens: choose context_length={2 * ROOM} or more, or probe=none"
        )


def record_refusal(request: Request, runs: Path, error: PairError) -> Path:
    """Record, among the runs of its study, one whose parts cannot work together; its directory."""
    record = RunRecord(_refusal(request, runs))
    record.update(
        format=FORMAT,
        study=request.config.study,
        run=record.directory.name,
        identity=record.directory.name.rpartition("-")[2],
        status="failed",
        reason=str(error),
        pos=request.pos,
        attention=request.attention,
        seed=request.config.seed,
        config=request.config.result_settings(),
    )
    return record.directory


def forget_refusal(request: Request, runs: Path) -> None:
    """Forget that a request was refused, by earlier code."""
    shutil.rmtree(_refusal(request, runs), ignore_errors=True)


def _refusal(request: Request, runs: Path) -> Path:
    identity = run_identity(request.config, Code("", "", ""), "")
    name = run_name((request.pos, request.attention), request.config.seed, identity)
    return runs / request.config.study / name


def resolve(config: Config, here: bool = True) -> Config:
    """The configuration with every `auto` replaced by what it means on this machine.

    Where the run is made on another one (not `here`), whose GPUs nobody knows, it must be said whether it has
    any, and bfloat16 is taken for granted on them. Raises ConfigError.
    """
    trainer, evaluate = config.trainer, config.evaluate
    accelerator = trainer.accelerator
    there = torch.cuda.is_available()
    if accelerator == "auto" and not here and not there:
        raise ConfigError(
            f"trainer.accelerator=auto asks this machine, which has no GPU, and launcher="
            f"{config.launcher.get('name')} runs elsewhere: choose trainer.accelerator=cuda or cpu"
        )
    if accelerator == "auto":
        accelerator = "cuda" if there else "cpu"
    elif accelerator == "cuda" and here and not there:
        raise ConfigError("trainer.accelerator=cuda, but PyTorch sees no CUDA device: use cpu or auto")
    precision = trainer.precision
    if precision == "auto":
        precision = (
            "bfloat16"
            if accelerator == "cuda"
            and (not there or torch.cuda.is_bf16_supported(including_emulation=False))
            else "float32"
        )
    longest = LONGEST[accelerator] if evaluate.longest == "auto" else evaluate.longest
    factor = evaluate.rescale_factor
    if factor == "auto" and FACTOR_METHODS & set(evaluate.rescale):
        factor = float(longest)
        if factor <= 1:
            raise ConfigError("evaluate.rescale reaches past L, but evaluate.longest=1: choose a longer one")
    rescale = [method for method in ("none", *METHODS) if method in evaluate.rescale]  # in one spelling
    return config.model_copy(
        update={
            "trainer": trainer.model_copy(update={"accelerator": accelerator, "precision": precision}),
            "evaluate": evaluate.model_copy(
                update={"longest": longest, "rescale_factor": factor, "rescale": rescale}
            ),
        }
    )


def _spelled_out(config: Config) -> Config:
    """The configuration with its parts' options checked and in one spelling (500 and 500.0 are one base).

    Whether the parts fit together is so told before any data is read. Raises ConfigError.
    """
    _, scheme, attentions = build_parts(config)
    for rescaling in rescalings(config):
        if not scheme.rescale(rescaling):
            raise ConfigError(
                f"evaluate.rescale={config.evaluate.rescale} is for rotations, and "
                f"pos.scheme={scheme.name} has none: leave it out, or give it a command of its own"
            )
        scheme.rescale(None)
        if not changes_rotation(scheme, rescaling, longest_length(config)):
            raise ConfigError(
                f"evaluate.rescale={rescaling.method} changes nothing for pos.scheme={scheme.name} up to its "
                "longest evaluation: leave it out, or choose a longer evaluate.longest"
            )
    pos = scheme.section()
    attention = {"kind": config.attention["kind"], **attentions[0].options.model_dump()}
    return config.model_copy(update={"pos": pos, "attention": attention})
