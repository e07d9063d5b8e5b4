"""Compare training steps in bfloat16 and float32 on a CPU: python benchmarks/precision.py

A step is forward, backward and AdamW of a complete model, as in training (with the autocast of Lightning's
bf16-mixed), with one thread. Ratios are tokens/s in bfloat16 over those in float32.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from attention_trial import keep_memory
from in_turns import in_turns, ratio
from poslab.config.arguments import read_options, refuse
from poslab.config.compose import arms
from poslab.config.errors import UserError
from poslab.model.attention import build_attentions
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, build_scheme
from poslab.study.launch.devices import cpu_has_bfloat16

CONF = Path(__file__).parent.parent / "conf"
VOCABULARY = 256
DEFAULTS = {
    "pos": "rope,alibi,t5",
    "attention": "flash,linear",
    "lengths": "256,512,1024",
    "tokens": "1024",  # per step
    "layers": "6",  # as in model=micro
    "width": "384",
    "heads": "6",
    "rounds": "11",
}


def main(arguments: list[str]) -> None:
    try:
        chosen = DEFAULTS | read_options(arguments, list(DEFAULTS))
    except UserError as error:
        raise SystemExit(refuse(Path(__file__).name, str(error))) from None
    torch.set_num_threads(1)
    keep_memory()  # otherwise large tensors cost system calls each time
    if not cpu_has_bfloat16():
        raise SystemExit("this machine's CPU has no bfloat16 instructions")
    print("Tokens/s in bfloat16 over those in float32")
    for length in (int(length) for length in chosen["lengths"].split(",")):
        geometry = Geometry(int(chosen["width"]), int(chosen["heads"]), length, int(chosen["layers"]))
        windows = max(1, int(chosen["tokens"]) // length)
        stream = torch.Generator().manual_seed(0)
        tokens = torch.randint(VOCABULARY, (windows, length + 1), generator=stream)
        for attention in chosen["attention"].split(","):
            for pos in chosen["pos"].split(","):
                sections = arms(CONF / "pos")[pos], arms(CONF / "attention")[attention]
                work = {
                    name: step(model(*sections, geometry), tokens, name == "bfloat16")
                    for name in ("float32", "bfloat16")
                }
                seconds = in_turns(work, int(chosen["rounds"]), torch.device("cpu"))
                speed = ratio(seconds["float32"], seconds["bfloat16"])
                print(f"{windows} windows of {length:5,}  {attention + ' + ' + pos:16} {speed}", flush=True)


def model(pos: dict[str, Any], attention: dict[str, Any], geometry: Geometry) -> GPT:
    scheme = build_scheme(pos, geometry)
    layers = build_attentions(attention, geometry, [scheme.layer(index) for index in range(geometry.layers)])
    gpt = GPT(VOCABULARY, geometry, scheme, layers)
    gpt.initialise(0)
    return gpt


def step(gpt: GPT, tokens: torch.Tensor, half: bool) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            logits = gpt(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


if __name__ == "__main__":
    main(sys.argv[1:])
