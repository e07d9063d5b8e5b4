"""What tests share: the arms of conf/, and small models made from them."""

import functools
import itertools
import signal
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

from poslab.config.compose import arms, one_for_each_scheme
from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError, check
from poslab.model.attention import build_attention
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, build_scheme
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.make import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.training.checkpoints import from_bytes, to_bytes

torch.set_num_threads(1)  # two processes of tests share the cores


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Files that give commands take minutes: they come first, lest one process ends long after the other."""
    items.sort(key=lambda item: "commands" not in _sources(item.module))


@functools.cache
def _sources(module: ModuleType) -> set[str]:
    return {getattr(value, "__module__", "") for value in vars(module).values()}


CONF = Path(__file__).parent.parent / "conf"


# Every file of a group: a scheme or an attention that is added is tested without being named.
POSITIONS = arms(CONF / "pos")
ATTENTIONS = arms(CONF / "attention")
SCHEMES = one_for_each_scheme(POSITIONS)


def make_gpt(
    pos: dict[str, Any],
    attention: dict[str, Any],
    *,
    width: int = 32,
    heads: int = 4,
    layers: int = 4,
    context_length: int = 64,
    vocabulary: int = 50,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> GPT:
    geometry = Geometry(width, heads, context_length, layers)
    scheme = build_scheme(pos, geometry)
    gpt = GPT(
        vocabulary,
        geometry,
        scheme,
        [build_attention(attention, geometry, scheme.layer(index)) for index in range(layers)],
    )
    gpt.initialise(seed)
    with torch.no_grad():
        # GPT-2's small weights make all attention nearly uniform; these make it matter.
        for parameter in gpt.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(8)
    return gpt.to(dtype)


@pytest.fixture(autouse=True)
def _own_cache_and_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tests neither read nor fill the user's cache, and a test that would reach a network fails at once."""
    cache = tmp_path_factory.getbasetemp().parent / "poslab-test-cache"
    monkeypatch.setenv("POSLAB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")


class Told:
    """A watcher that keeps what training tells: rows, (step, loss), and the states at `keep`."""

    def __init__(self, keep: Collection[int] = ()) -> None:
        self.rows: list[Any] = []
        self.steps: list[tuple[int, float]] = []
        self.keep = keep
        self.states: dict[int, Any] = {}

    def started(self) -> None:
        pass

    def row(self, row: Any) -> None:
        self.rows.append(row)

    def step(self, step: int, loss: Any, tokens_per_second: float) -> None:
        self.steps.append((step, loss()))

    def maybe_checkpoint(self, step: int, state: Any) -> None:
        if step in self.keep:  # as it is on disk: training goes on and changes its tensors
            self.states[step] = from_bytes(to_bytes(state()))


def make(wanted: Request, runs: Path) -> dict[str, Any]:
    """Make a run in this process; its manifest."""
    return run(plan(wanted, runs), RunDisplay("made", Console(quiet=True)), Stopper())


class StopsAt(RunDisplay):
    """Raises a signal when it is told of a step."""

    def __init__(self, step: int) -> None:
        super().__init__("stopped", Console(quiet=True))
        self.at = step

    def step(self, step: int, loss: Any, tokens_per_second: float) -> None:
        if step == self.at:
            signal.raise_signal(signal.SIGTERM)


def request(study: str = "test", **changes: Any) -> Request:
    """A checked request for a run of seconds on the copy task; `changes` `a__b` for a.b."""
    plain: dict[str, Any] = {
        "study": study,
        "question": None,
        "seed": 0,
        "context_length": 32,
        "pos": POSITIONS["rope"],
        "attention": ATTENTIONS["flash"],
        "data": {**arms(CONF / "data")["copy"], "tokens": 60_000},
        "model": {"layers": 2, "width": 32, "heads": 2},
        "trainer": {
            **arms(CONF / "trainer")["nano"],
            "max_steps": 20,
            "batch_size": 8,
            "warmup_steps": 5,
            "learning_rate": 1e-2,
            "accelerator": "cpu",
        },
        "evaluate": {
            **arms(CONF / "evaluate")["default"],
            "validations": 5,
            "validation_windows": 4,
            "longest": 4,
            "segments": 3,
            "sliding_windows": 10,
        },
        "probe": {"tasks": []},
        "part": "comparison",
        "tune": {"factors": [], "seeds": []},
        "reference": None,
        "logger": {"name": "local"},
        "launcher": arms(CONF / "launcher")["local"],
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        section = plain
        for name in path:
            section[name] = dict(section[name])
            section = section[name]
        section[last] = value
    return Request(check(Config, plain, ""), "rope", "flash")


def pairs_that_work() -> list[tuple[str, str]]:
    """One arm of each scheme with every attention; a pair that cannot work says so when it is built."""
    found = []
    for pos, attention in itertools.product(SCHEMES, ATTENTIONS):
        try:
            make_gpt(SCHEMES[pos], ATTENTIONS[attention])
        except ConfigError:
            continue
        found.append((pos, attention))
    return found


PAIRS = pairs_that_work()
