"""Measure memory and time of a training step with the loss in blocks of logits: python benchmarks/loss.py

A GPT of width 512 with a vocabulary of 50,257 on 4 windows of 1,024 tokens, float32: the loss and all its
gradients, with all logits at once and in blocks, in turn. Memory is what one step adds to the peak of a
separate process, including the gradients of the weights. Time is processor time, as a ratio with a 95 %
interval by bootstrap over the rounds.
"""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from poslab.config.arguments import read_options, refuse
from poslab.config.compose import arms
from poslab.config.errors import UserError
from poslab.model.attention import build_attentions
from poslab.model.gpt import GPT
from poslab.model.kernels import cross_entropy
from poslab.model.positions import Geometry, build_scheme

CONF = Path(__file__).parent.parent / "conf"
DEFAULTS = {
    "vocabulary": "50257",
    "width": "512",
    "layers": "4",
    "windows": "4",
    "length": "1024",
    "rounds": "9",
}
WAYS = {"all": sys.maxsize, "blocks": cross_entropy.LOGITS}


class Step:
    """A model and a batch, with the loss and its gradients computed by `take`."""

    def __init__(self, chosen: dict[str, str]) -> None:
        vocabulary, width, layers, windows, length = (int(chosen[name]) for name in list(DEFAULTS)[:5])
        geometry = Geometry(width, width // 64, length, layers)
        scheme = build_scheme(arms(CONF / "pos")["rope"], geometry)
        attentions = build_attentions(arms(CONF / "attention")["flash"], geometry, [scheme] * layers)
        self.gpt = GPT(vocabulary, geometry, scheme, attentions)
        self.gpt.initialise(0)
        random = torch.Generator().manual_seed(0)
        self.tokens, self.targets = torch.randint(vocabulary, (2, windows, length), generator=random)

    def take(self, way: str) -> tuple[float, float]:
        """Return the loss and the processor seconds of a step."""
        cross_entropy.LOGITS = WAYS[way]
        self.gpt.zero_grad()
        began = time.process_time()
        loss = self.gpt(self.tokens, targets=self.targets)
        loss.backward()
        return loss.item(), time.process_time() - began


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # bytes, on Linux


def main(arguments: list[str]) -> None:
    way = arguments.pop(0) if arguments and arguments[0] in WAYS else None
    try:
        chosen = DEFAULTS | read_options(arguments, list(DEFAULTS))
    except UserError as error:
        raise SystemExit(refuse("loss.py", str(error))) from None
    step = Step(chosen)
    if way is not None:  # the process that takes one step
        before = peak()
        step.take(way)
        print(peak() - before)
        return
    added = {}
    for name in WAYS:
        command = [sys.executable, __file__, name, *arguments]
        added[name] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{name}: a step adds {added[name] / 2**20:,.0f} MiB")
    gradients = sum(parameter.numel() for parameter in step.gpt.parameters()) * 4
    print(f"of each, {gradients / 2**20:,.0f} MiB are the gradients of the weights")
    losses = {name: step.take(name)[0] for name in WAYS}  # this also warms up
    print(f"losses: {', '.join(f'{name} {loss:.7f}' for name, loss in losses.items())}")
    compare(step)
    ratios = []
    for _ in range(int(chosen["rounds"])):
        seconds = {name: step.take(name)[1] for name in WAYS}
        ratios.append(seconds["blocks"] / seconds["all"])
    drawn = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    print(f"time of blocks over all: {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})")


def compare(step: Step) -> None:
    """Print the largest difference of the gradients, relative to the largest gradient of its weight."""
    gradients = {}
    for way in WAYS:
        step.take(way)
        gradients[way] = [
            parameter.grad.clone() for parameter in step.gpt.parameters() if parameter.grad is not None
        ]
    difference = max(
        float((blocks - whole).abs().max() / whole.abs().max())
        for blocks, whole in zip(gradients["blocks"], gradients["all"], strict=True)
    )
    print(f"gradients differ by at most {difference:.1e} of the largest one of the same weight")


if __name__ == "__main__":
    main(sys.argv[1:])
