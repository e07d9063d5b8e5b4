"""Measure how time grows with the length in mixers without attention: python benchmarks/mixers.py

One layer with its projections, forward and backward, B = 1, 4 heads of width 32, float32, one thread,
pos=none. Processor time, the shortest round; the exponent is the least-squares slope of the logarithms.
"""

import math
import statistics
import sys
import time
from pathlib import Path

import torch

from attention_trial import keep_memory
from poslab.config.arguments import read_options, refuse
from poslab.config.compose import arms
from poslab.config.errors import UserError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme

CONF = Path(__file__).parent.parent / "conf"
DEFAULTS = {
    "attention": "retention,gated_linear,gated_delta",
    "lengths": "1024,2048,4096,8192,16384",
    "rounds": "5",
}


def main(arguments: list[str]) -> None:
    try:
        chosen = DEFAULTS | read_options(arguments, list(DEFAULTS))
    except UserError as error:
        raise SystemExit(refuse(Path(__file__).name, str(error))) from None
    torch.set_num_threads(1)
    keep_memory()
    lengths = [int(length) for length in chosen["lengths"].split(",")]
    for name in chosen["attention"].split(","):
        seconds = [shortest(name, length, int(chosen["rounds"])) for length in lengths]
        slope = statistics.linear_regression(list(map(math.log, lengths)), list(map(math.log, seconds))).slope
        grown = ", ".join(f"{value / seconds[0]:.2f}" for value in seconds)
        print(f"{name}: time grows as length^{slope:.3f} ({grown} times that of {lengths[0]:,} tokens)")


def shortest(name: str, length: int, rounds: int) -> float:
    geometry = Geometry(128, 4, length, 1)
    scheme = build_scheme({"scheme": "none"}, geometry)
    mixer = build_attention(arms(CONF / "attention")[name], geometry, scheme)
    mixer.draw(torch.Generator().manual_seed(0))
    x = torch.randn(1, length, 128, generator=torch.Generator().manual_seed(1), requires_grad=True)
    times = []
    for _ in range(rounds):
        began = time.process_time()
        mixer(x, Site(scheme, torch.arange(length))).square().sum().backward()
        times.append(time.process_time() - began)
    return min(times)


if __name__ == "__main__":
    main(sys.argv[1:])
