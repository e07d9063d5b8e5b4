"""Measure how fast poslab is on a GPU: python benchmarks/gpu.py

In under eight minutes on an H200, without a network, W&B or `datasets`:

- the main arms with compiled blocks, compared with nanoGPT's model (--nanogpt PATH/model.py) and with
  x-transformers, if that is installed, at the sizes micro and small;
- 1, 2, 4 and 8 complete nano runs at once on the device, to choose launcher.runs_per_gpu;
- evaluation at 16 L;
- a training step of every pair of scheme and attention, not compiled.

For each: tokens per second, the share of the device's peak, memory, and the kernel that ran. --smoke runs
everything at a size that takes seconds, also on a CPU, where nothing is compiled, to test the program.
"""

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from gpu_runs import runs_at_once
from in_turns import settle, table, timed
from peers import CONF, X_TRANSFORMERS, Contender, Size, nanogpt, poslab_gpt, sizes, x_transformers
from poslab.config.compose import arms, one_for_each_scheme
from poslab.config.schema import ConfigError
from poslab.evaluation.losses import token_losses
from poslab.model.gpt import GPT

# Dense bfloat16 matrix products in FLOP/s from the vendors' data sheets, by a part of PyTorch's device name.
DATA_SHEET = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A10": 125e12,
    "4090": 165e12,
    "3090": 71e12,
}
WINDOWS = {"micro": 64, "small": 32}  # per step
MAIN = (("rope", "flash"), ("none", "flash"), ("alibi", "flash"), ("t5", "flash"), ("rope", "linear"))
EVALUATED = (("rope", "flash"), ("alibi", "flash"), ("t5", "flash"), ("kerple", "flash"), ("rope", "linear"))
TIMES_AS_LONG = 16  # evaluation windows, in units of L
AT_ONCE = (1, 2, 4, 8)
ENOUGH = 0.95  # share of the highest tokens per second from which on fewer runs are as good
GIB = 2**30
LEFT_OUT = ["", "", "", "left out: no time"]


@dataclass(frozen=True)
class Plan:
    """The extent of the measurements."""

    device: torch.device
    dtype: torch.dtype
    sizes: dict[str, Size]
    steps: int  # timed steps, after two that are not timed
    matrix: int  # rows and columns of the matrix product that measures the device
    nano_steps: int
    at_once: tuple[int, ...]
    evaluation_windows: int
    compiled: bool
    ends: float  # time.monotonic() after which nothing more is started

    def over(self) -> bool:
        return time.monotonic() > self.ends


def matrix_rate(plan: Plan) -> float:
    """Return the FLOP per second in a product of two random square matrices."""
    left, right = torch.randn(2, plan.matrix, plan.matrix, device=plan.device, dtype=plan.dtype)
    seconds = [timed(lambda: left @ right, plan.device) for _ in range(12)]
    return float(2 * plan.matrix**3 / statistics.median(seconds[2:]))


def peak(plan: Plan) -> tuple[float, str]:
    """Return the peak FLOP per second for computing shares, and the source of the number."""
    measured = matrix_rate(plan)
    rate = f"{measured / 1e12:,.2f} TFLOP/s measured by a {plan.dtype} matrix product of {plan.matrix:,}"
    if plan.device.type == "cuda":
        name = torch.cuda.get_device_name(plan.device)
        print(f"{name}, PyTorch {torch.__version__}: {rate}")
        for key, sheet in DATA_SHEET.items():
            if key in name:
                return sheet, f"the data sheet's {sheet / 1e12:,.0f} TFLOP/s in bfloat16"
    else:
        print(f"CPU, PyTorch {torch.__version__}: {rate}")
    return measured, "the measured matrix product"


@contextmanager
def freed(device: torch.device) -> Iterator[None]:
    """Free the memory that is allocated in the block; its peak can be read inside."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    yield
    gc.collect()


def most_memory(device: torch.device) -> str:
    """Return the peak GiB allocated by PyTorch's allocator; empty on a CPU."""
    return f"{torch.cuda.max_memory_allocated(device) / GIB:,.1f}" if device.type == "cuda" else ""


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:70]


def measured(make: Callable[[], Contender | None], size: Size, plan: Plan, best: float) -> list[str] | None:
    """Return tokens per second, share of the peak, memory and kernel of a step, or why it failed.

    None if there is no such contender.
    """
    with freed(plan.device):
        try:
            contender = make()
            if contender is None:
                return None
            for _ in range(2):
                contender.step()
            settle(plan.device)
            seconds = statistics.median(timed(contender.step, plan.device) for _ in range(plan.steps))
        except ConfigError:
            return None
        except Exception as error:  # out of memory, or a kernel that does not compile: the others continue
            return ["", "", "", reason(error)]
        kernel = getattr(contender.model, "kernel", "") or contender.note
        share = flops(contender, size) / seconds / best
        return [f"{size.tokens / seconds:,.0f}", f"{share:.1%}", most_memory(plan.device), kernel]


def flops(contender: Contender, size: Size) -> float:
    """Return the FLOPs of a step: 6 N + 12 layers D L per token as in GPT.training_flops, also for peers."""
    if isinstance(contender.model, GPT):
        return contender.model.training_flops(size.tokens)
    matrices = sum(
        parameter.numel()
        for name, parameter in contender.model.named_parameters()
        if parameter.ndim == 2 and "wpe" not in name and "pos_emb" not in name and "relative" not in name
    )
    return size.tokens * float(6 * matrices + 12 * size.layers * size.width * size.context_length)


def show_peers(plan: Plan, model: Path | None, best: float) -> None:
    """Print the main arms and the peers."""
    done = ", compiled" if plan.compiled else ""
    for name, size in plan.sizes.items():
        common = (size, plan.device, plan.dtype)
        makers: dict[str, Callable[[], Contender | None]] = {}
        if model is not None:
            makers["nanoGPT learned"] = partial(nanogpt, model, *common)
            if plan.compiled:
                makers["nanoGPT learned, compiled"] = partial(nanogpt, model, *common, compiled=True)
        for pos, attention in MAIN:
            makers[f"poslab {pos} {attention}{done}"] = partial(
                poslab_gpt, pos, attention, *common, plan.compiled
            )
        for pos in X_TRANSFORMERS:
            makers[f"x-transformers {pos}"] = partial(x_transformers, pos, *common)
        show(f"{name}: the main arms, and peers", size, makers, plan, best)


def show_pairs(plan: Plan, best: float) -> None:
    """Print every pair, not compiled, so that only the kernel differs."""
    schemes = one_for_each_scheme(arms(CONF / "pos"))
    for name, size in plan.sizes.items():
        makers = {
            f"{pos} {attention}": partial(poslab_gpt, pos, attention, size, plan.device, plan.dtype)
            for attention, pos in itertools.product(sorted(arms(CONF / "attention")), schemes)
        }
        show(f"{name}: every pair", size, makers, plan, best)


def show(
    title: str,
    size: Size,
    makers: Mapping[str, Callable[[], Contender | None]],
    plan: Plan,
    best: float,
) -> None:
    """Print a row for each contender, including those left out for lack of time."""
    rows = []
    for label, make in makers.items():
        cells = LEFT_OUT if plan.over() else measured(make, size, plan, best)
        rows += [] if cells is None else [[label, *cells]]
    print(f"\n{title}, {size.windows} windows of {size.context_length:,} tokens per step")
    print(table(["", "tokens/s", "of peak", "GiB", "kernel"], rows), flush=True)


def show_evaluation(plan: Plan) -> None:
    """Print evaluation on windows of 16 L, in the precision of training."""
    for name, size in plan.sizes.items():
        length = TIMES_AS_LONG * size.context_length
        windows = np.random.default_rng(0).integers(
            size.vocabulary, size=(plan.evaluation_windows, length + 1)
        )
        longer = replace(size, windows=1)
        rows = [
            [
                f"{pos} {attention}",
                *(LEFT_OUT if plan.over() else evaluated(pos, attention, longer, windows, plan)),
            ]
            for pos, attention in EVALUATED
        ]
        print(f"\n{name}: evaluation at {TIMES_AS_LONG} L, {len(windows)} windows of {length:,} tokens")
        print(table(["", "tokens/s", "", "GiB", "kernel"], rows), flush=True)


def evaluated(
    pos: str, attention: str, size: Size, windows: Int[np.ndarray, "N T+1"], plan: Plan
) -> list[str]:
    """Return tokens per second, memory and kernel of an evaluation, or why it failed."""
    with freed(plan.device):
        try:
            gpt = poslab_gpt(pos, attention, size, plan.device, plan.dtype).model
            assert isinstance(gpt, GPT)
            half = plan.dtype != torch.float32
            with torch.autocast(plan.device.type, dtype=torch.bfloat16, enabled=half):
                tokens, targets = windows[:, :-1], windows[:, 1:]
                token_losses(gpt, tokens[:1], targets[:1])
                seconds = timed(partial(token_losses, gpt, tokens, targets), plan.device)
        except Exception as error:
            return ["", "", "", reason(error)]
        return [f"{targets.size / seconds:,.0f}", "", most_memory(plan.device), gpt.kernel]


def show_runs(plan: Plan) -> None:
    """Print complete nano runs that share the device, and how many at once are worthwhile."""
    rows, rates = [], {}
    for count in plan.at_once:
        if plan.over():
            rows.append([str(count), "left out: no time", "", ""])
            continue
        try:
            result = runs_at_once(count, plan.nano_steps, plan.device.type)
        except RuntimeError as error:
            rows.append([str(count), reason(error), "", ""])
            continue
        rates[count] = result.tokens_per_second
        single = rates.get(plan.at_once[0])
        rows.append(
            [
                str(count),
                f"{result.tokens_per_second:,.0f}",
                "" if single is None else f"{rates[count] / single:.2f}",
                f"{result.peak_bytes / GIB:,.2f}",
            ]
        )
    print(f"\nnano runs of {plan.nano_steps} steps at once, including validations")
    print(table(["runs", "total tokens/s", "over one run", "GiB each"], rows))
    if rates:
        fewest = min(count for count, rate in rates.items() if rate >= ENOUGH * max(rates.values()))
        print(
            f"launcher.runs_per_gpu={fewest} trains within {1 - ENOUGH:.0%} of the most tokens per second.",
            flush=True,
        )


def whole(device: torch.device, minutes: float) -> Plan:
    shapes = sizes()
    return Plan(
        device=device,
        dtype=torch.bfloat16,
        sizes={
            "micro": Size(**shapes["micro"], vocabulary=257, windows=WINDOWS["micro"]),
            "small": Size(**shapes["small"], vocabulary=50_257, windows=WINDOWS["small"]),
        },
        steps=5,
        matrix=8_192,
        nano_steps=400,
        at_once=AT_ONCE,
        evaluation_windows=16,
        compiled=True,
        ends=time.monotonic() + 60 * minutes,
    )


def smoke(device: torch.device, minutes: float) -> Plan:
    """Return a plan with everything at a size that takes seconds."""
    torch.set_num_threads(1)
    return Plan(
        device=device,
        dtype=torch.float32 if device.type == "cpu" else torch.bfloat16,
        sizes={"tiny": Size(layers=2, width=32, heads=2, context_length=16, vocabulary=64, windows=2)},
        steps=2,
        matrix=256,
        nano_steps=4,
        at_once=(1, 2),
        evaluation_windows=2,
        compiled=device.type == "cuda",
        ends=time.monotonic() + 60 * minutes,
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nanogpt", type=Path, metavar="PATH/model.py")
    parser.add_argument("--minutes", type=float, default=7.5, help="after which nothing more is started")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(given)
    cuda = torch.cuda.is_available()
    if not cuda and not options.smoke:
        print("PyTorch finds no CUDA device; --smoke tests the program without one", file=sys.stderr)
        return 1
    plan = (smoke if options.smoke else whole)(torch.device("cuda" if cuda else "cpu"), options.minutes)
    best, source = peak(plan)
    print(f"Shares are of {source}, with 6 N + 12 layers D L operations per token.", flush=True)
    show_peers(plan, options.nanogpt, best)
    show_runs(plan)
    show_evaluation(plan)
    show_pairs(plan, best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
