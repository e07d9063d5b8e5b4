"""Measure one attention at one length: its time and its peak memory.

One layer's `attend` runs forward and backward on queries, keys and values that require gradients, and on
gates if the scheme has them: B = 1, H = 4 heads of width 32, float32, without projections.

Time is that of forward and backward only; inputs are drawn before. With one thread on a CPU it is the
process's processor time, since on a busy machine interruptions lengthen the wall-clock time of long runs more
than that of short ones. With more threads, and on CUDA, it is wall-clock time.

Memory is the peak of the bytes allocated by PyTorch's allocator: inputs, output, all gradients, and all that
is alive in between, including kernels' working space, but not the scheme's parameters, the interpreter or the
libraries. On a CPU it is the highest running sum of the allocations and releases that the profiler
records; on CUDA it is `torch.cuda.max_memory_allocated`. Unlike the process's resident memory, it does not
depend on memory that the C library does not return to the system; without such memory the two agree
(README.md).
"""

import ctypes
import gc
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from poslab.model.attention import Attention, Site, build_attention
from poslab.model.positions import Geometry, Scheme, build_scheme

WIDTH, HEADS, LAYERS = 128, 4, 4
BRIEF = 0.05  # seconds; shorter passes are repeated, since the first one has cold caches


@dataclass(frozen=True)
class Task:
    """The task of one process: two sections of a configuration, a length, and where to run."""

    pos: Mapping[str, Any]
    attention: Mapping[str, Any]
    length: int
    threads: int
    device: str


@dataclass(frozen=True)
class Peak:
    """The answer to "memory"; `seconds` is the time of the profiled pass."""

    bytes: int
    seconds: float
    kernel: str


@dataclass(frozen=True)
class Failure:
    reason: str


def build(
    pos: Mapping[str, Any], attention: Mapping[str, Any], length: int
) -> tuple[Scheme, Scheme, Attention]:
    """Return a scheme, its first layer and its attention. Raises ConfigError if they do not work together.

    The training length is the measured length, so that learned positions have a vector for every token.
    """
    geometry = Geometry(WIDTH, HEADS, length, LAYERS)
    scheme = build_scheme(pos, geometry)
    layer = scheme.layer(0)
    mixer = build_attention(attention, geometry, layer)
    assert isinstance(mixer, Attention), "mixers without queries and keys are measured by mixers.py"
    return scheme, layer, mixer


def adds_to_logits(layer: Scheme) -> bool:
    """Return whether the layer has a bias or gates."""
    return any(map(layer.overrides, ("bias", "pairwise_bias", "log_gates")))


class Trial:
    """Repeated passes of one attention at one length."""

    def __init__(self, task: Task) -> None:
        self.length, self.device = task.length, torch.device(task.device)
        single_thread = task.device == "cpu" and task.threads == 1
        self.clock = time.process_time if single_thread else time.perf_counter
        self.stream = torch.Generator().manual_seed(0)
        self.scheme, self.layer, self.attention = build(task.pos, task.attention, task.length)
        for parameter in self.scheme.parameters():  # as GPT.initialise does
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, 0, 0.02, generator=self.stream)
        self.scheme.draw(self.stream)
        self.attention.draw(self.stream)
        self.scheme.to(self.device)
        self.attention.to(self.device)
        self.positions = self.scheme.place(task.length, None).to(self.device)

    def seconds(self) -> float:
        """Return the shortest time of the passes that fit into BRIEF seconds, at least one."""
        shortest, began = self._once(), time.perf_counter()
        while time.perf_counter() - began + shortest < BRIEF:
            shortest = min(shortest, self._once())
        return shortest

    def peak(self) -> Peak:
        gc.collect()  # memory from an earlier pass must not be released in this one
        watch = self._cuda_peak if self.device.type == "cuda" else self._cpu_peak
        peak, seconds = watch()
        return Peak(peak, seconds, self.attention.kernel)

    def _cuda_peak(self) -> tuple[int, float]:
        self._forget_gradients()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        seconds = self._once()
        return torch.cuda.max_memory_allocated() - before, seconds

    def _cpu_peak(self) -> tuple[int, float]:
        self._forget_gradients()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            seconds = self._once()
        assert profiler.profiler is not None
        assert profiler.profiler.kineto_results is not None
        alive = peak = 0
        # Single allocations, in order: the profiler's tables have only sums by operator.
        for event in profiler.profiler.kineto_results.events():
            if event.name() == "[memory]":
                alive += event.nbytes()  # below 0 for a release
                peak = max(peak, alive)
        return peak, seconds

    def _once(self) -> float:
        self._forget_gradients()
        width = WIDTH // HEADS
        q, k, v, gradient = (self._normal(1, HEADS, self.length, width) for _ in range(4))
        x = self._normal(1, self.length, WIDTH) if self.layer.by_content else None
        for leaf in (q, k, v, x):
            if leaf is not None:
                leaf.requires_grad_()
        self._wait()
        began = self.clock()
        at = self.layer, self.positions
        site = Site(*at) if x is None else Site.of(*at, x)
        mixed = self.attention.attend(q, k, v, site)
        torch.autograd.backward(mixed, gradient)
        self._wait()
        return self.clock() - began

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.stream).to(self.device)

    def _forget_gradients(self) -> None:
        self.scheme.zero_grad(set_to_none=True)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def serve(connection: Connection, task: Task) -> None:
    """Answer "memory" with a Peak and "time" with seconds, or either with a Failure, until None arrives."""
    torch.set_num_threads(task.threads)
    keep_memory()
    try:
        trial = Trial(task)
        for request in iter(connection.recv, None):
            connection.send(trial.peak() if request == "memory" else trial.seconds())
    except (EOFError, KeyboardInterrupt):
        pass  # the benchmark has ended
    except Exception as error:
        connection.send(Failure(f"{type(error).__name__}: {str(error).splitlines()[0]}"))


def keep_memory() -> None:
    """Make the C library reuse released memory in the next pass.

    By default it returns tensors of 32 MB and more to the system and gets them back page by page, hundreds of
    times: a system cost that would begin at some of the lengths.
    """
    with suppress(OSError, AttributeError):  # only glibc has mallopt
        library = ctypes.CDLL(None)
        library.mallopt(-4, 0)  # M_MMAP_MAX
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
