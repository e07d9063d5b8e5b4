"""Complete training runs that share a device: several processes train the default model at once.

Each does the same as a run in a study from its first step to its last, including validations and reading
batches. Records, W&B and process startup are left out.
"""

import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty

import torch
from torch.multiprocessing import get_context

from poslab.config.checking import check
from poslab.config.compose import arms
from poslab.config.schema import RunConfig
from poslab.data.cache import prepare
from poslab.model.gpt import build
from poslab.study.launch.devices import peak_memory
from poslab.training.observer import Observer

CONF = Path(__file__).parent.parent / "conf"
PATIENCE = 240.0  # seconds in which all runs must end

Ended = tuple[float, float, int]  # when a run began and ended (time.monotonic), and its peak bytes


@dataclass(frozen=True)
class Together:
    """The result of runs that trained at once."""

    tokens_per_second: float  # of all runs, from the first step of the first to the end of the last
    peak_bytes: int  # of the run with the highest peak


def config(steps: int, device: str) -> RunConfig:
    """Return the default model, trainer and evaluation, on random text, which needs no library."""
    model = arms(CONF / "model")["nano"]
    trainer = {**arms(CONF)["config"]["trainer"], **arms(CONF / "trainer")["nano"]}
    evaluate = arms(CONF / "evaluate")["default"]
    return check(
        RunConfig,
        {
            "seed": 0,
            "context_length": model["context_length"],
            "pos": arms(CONF / "pos")["rope"],
            "attention": arms(CONF / "attention")["flash"],
            "data": {**arms(CONF / "data")["copy"], "tokens": 500_000},
            "model": model["model"],
            "trainer": {
                **trainer,
                "max_steps": steps,
                "accelerator": device,
                "precision": "bfloat16" if device == "cuda" else "float32",
                "compile": False,
            },
            "evaluate": {**evaluate, "longest": 1},
            "probe": {"tasks": []},
            "part": "comparison",
        },
        "",
    )


def runs_at_once(count: int, steps: int, device: str) -> Together:
    """Train `count` runs at once. Raises RuntimeError if one of them fails."""
    setup = config(steps, device)
    prepare(setup.data)  # once, before all processes need it
    context = get_context("spawn")  # a forked process cannot use CUDA after its parent has used it
    ready, ended = context.Barrier(count), context.Queue()
    processes = [context.Process(target=_run, args=(setup, ready, ended), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        times = [_next(ended, time.monotonic() + PATIENCE) for _ in processes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    tokens = count * steps * setup.trainer.batch_size * setup.context_length
    seconds = max(end for _, end, _ in times) - min(begun for begun, _, _ in times)
    return Together(tokens / seconds, max(size for _, _, size in times))


def _next(ended: "Queue[Ended | str]", until: float) -> Ended:
    try:
        result = ended.get(timeout=max(0.0, until - time.monotonic()))
    except Empty:
        raise RuntimeError(f"not done within {PATIENCE:.0f} s") from None
    if isinstance(result, str):
        raise RuntimeError(result)
    return result


def _run(config: RunConfig, ready: Barrier, ended: "Queue[Ended | str]") -> None:
    from poslab.training.loop import train  # Lightning takes seconds, and the parent does not need it

    torch.set_num_threads(1)
    try:
        corpus = prepare(config.data)
        observer = _Together(ready)
        train(build(config, corpus.vocabulary), config, corpus, observer)
        ended.put((observer.begun, time.monotonic(), peak_memory()))
    except Exception as error:
        ended.put(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


class _Together(Observer):
    """Waits before the first step until all runs are ready."""

    def __init__(self, ready: Barrier) -> None:
        self.ready = ready
        self.begun = 0.0

    def started(self) -> None:
        self.ready.wait(PATIENCE)
        self.begun = time.monotonic()
