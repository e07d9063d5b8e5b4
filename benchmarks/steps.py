"""Measure the cost of a run's step relative to a bare loop: python benchmarks/steps.py

A complete run trains (Lightning, records, checkpoints, progress, W&B offline). After each of its steps, a
bare PyTorch loop takes one with the same model, batches, optimizer, clipping, schedule and precision. Each
pair of steps gives a ratio, so the machine's speed is the same for both.

The output separates plain steps from steps after a validation, which include the losses on the validation
windows, the row of the record and the data sent to W&B. Settings of train.py may follow: logger=local,
pos=alibi, model=micro trainer.max_steps=200.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import poslab
from in_turns import Ratio, ratio, settle
from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.windows import training_batch
from poslab.model.gpt import build
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.execute import RunExecutor
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.training.module import LanguageModel

BOUND = 1.03
WARM = 10  # the first pairs, which are not counted


class BareLoop:
    """The training of a run as a plain loop, without anything around it."""

    def __init__(self, config: RunConfig, corpus: Corpus) -> None:
        self.config, self.corpus = config, corpus
        self.device = torch.device(config.trainer.accelerator)
        self.gpt = build(config, corpus.vocabulary)
        self.gpt.initialise(config.seed)
        self.gpt.to(self.device)
        chosen = LanguageModel(self.gpt, config.trainer, config.seed).configure_optimizers()
        self.optimizer, self.schedule = chosen["optimizer"], chosen["lr_scheduler"]["scheduler"]
        self.steps = 0

    def step(self) -> Tensor:
        options, config = self.config.trainer, self.config
        windows = torch.from_numpy(
            training_batch(self.corpus, config.seed, self.steps, options.batch_size, config.context_length)
        ).to(self.device)
        half = options.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            logits = self.gpt(windows[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.gpt.parameters(), options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        self.steps += 1
        return loss.detach()


class BesideABareLoop(RunExecutor):
    """A run that takes a step of the bare loop after each of its own, and times both."""

    def __init__(self, job: Job, display: RunDisplay, stopper: Stopper) -> None:
        super().__init__(job, display, stopper)
        self.bare = BareLoop(job.config, job.corpus)
        single_thread = self.bare.device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if single_thread else time.perf_counter
        self.seconds: dict[str, list[float]] = {"run": [], "bare": []}
        self.validated: list[bool] = []  # whether the run has validated since its previous step
        self.has_validated = False
        self.since = 0.0

    def started(self) -> None:
        super().started()
        self.since = self.clock()

    def row(self, row: object) -> None:
        super().row(row)  # type: ignore[arg-type]
        self.has_validated = True

    def step(self, step: int, loss: Callable[[], float], tokens_per_second: float) -> None:
        super().step(step, loss, tokens_per_second)
        settle(self.bare.device)
        now = self.clock()
        self.bare.step()
        settle(self.bare.device)
        self.seconds["run"].append(now - self.since)
        self.since = self.clock()
        self.seconds["bare"].append(self.since - now)
        self.validated.append(self.has_validated)
        self.has_validated = False

    def ratio(self, validated: bool) -> Ratio:
        """Return the run's seconds over the bare loop's, for pairs with or without a validation."""
        counted = [i for i, after in enumerate(self.validated) if after == validated and i >= WARM]
        return ratio(*([self.seconds[name][index] for index in counted] for name in ("run", "bare")))


def measure(settings: Sequence[str], cwd: Path) -> BesideABareLoop:
    """Train and evaluate a run with `settings` in the directory `cwd`, and return its executor."""
    job = plan(poslab.compose(*settings), cwd / "runs")
    display = RunDisplay(job.request.title, job.directory, quiet=True)
    with Stopper().installed() as stopper:
        executor = BesideABareLoop(job, display, stopper)
        manifest = executor.run()
    if manifest.status != "done":
        raise SystemExit(f"the run is {manifest.status}: {manifest.reason}")
    return executor


def show(executor: BesideABareLoop) -> None:
    plain, validated = executor.ratio(False), executor.ratio(True)
    counts = [executor.validated[WARM:].count(after) for after in (False, True)]
    every = sum(counts) / max(1, counts[1])
    print(f"{executor.job.request.title}, {executor.job.config.trainer.precision} on {executor.bare.device}")
    print(f"A step of the run over a step of a bare loop: {plain}, {counts[0]} pairs")
    print(f"A step with the validation before it: {validated}, {counts[1]} pairs, one in {every:.0f}")
    total = [math.fsum(executor.seconds[name][WARM:]) for name in ("run", "bare")]
    print(f"The whole run, from its first step to its last, over the bare loop: {total[0] / total[1]:.3f}")
    verdict = "holds" if plain.high <= BOUND else "is missed" if plain.low > BOUND else "is undecided"
    print(f"The bound of {BOUND} on a step {verdict}.")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of train.py")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    short = ["evaluate.longest=1", "evaluate.segments=4", "evaluate.sliding_windows=8"]
    with tempfile.TemporaryDirectory() as folder:
        show(measure([*short, *options.settings], Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
