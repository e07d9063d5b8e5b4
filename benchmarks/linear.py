"""Compare linear attention with its plain chunk form: python benchmarks/linear.py

The plain form is that of flash-linear-attention's reference, `naive_chunk_linear_attn`, reimplemented: all
chunks of 64 tokens at once, their states by a cumulative sum, autograd's backward, no bias, no rotation.
Each time is of one layer, forward and backward, float32, one thread; queries, keys and values require
gradients. Ratios are to the plain form with phi and the denominator, which is attention=linear pos=none.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu

from attention_trial import keep_memory
from in_turns import in_turns, ratio, table
from poslab.config.arguments import read_options, refuse
from poslab.config.compose import arms
from poslab.config.errors import UserError
from poslab.model.attention import Site, build_attention
from poslab.model.positions import Geometry, build_scheme

CONF = Path(__file__).parent.parent / "conf"
CHUNK = 64
DEFAULTS = {
    "pos": "none,rope,alibi,t5,fox",
    "attention": "linear",
    "length": "4096",  # tokens, a multiple of CHUNK
    "batch": "1",
    "heads": "12",  # as in model=small; model=micro has 6
    "head_width": "64",
    "chunks": "64",  # tokens; several values are compared
    "rounds": "15",
}

Form = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = elu(q) + 1, elu(k) + 1
    return unnormalised(q, k, v) / (q * k.cumsum(dim=2)).sum(dim=-1, keepdim=True)


def unnormalised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.reshape(*x.shape[:2], -1, CHUNK, x.shape[-1]) for x in (q, k, v))
    states = (k.mT @ v).cumsum(dim=2)
    states = torch.cat([torch.zeros_like(states[:, :, :1]), states[:, :, :-1]], dim=2)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    return (q @ states + (q @ k.mT).masked_fill_(later, 0) @ v).flatten(2, 3)


def main(arguments: list[str]) -> None:
    try:
        chosen = DEFAULTS | read_options(arguments, list(DEFAULTS))
    except UserError as error:
        raise SystemExit(refuse(Path(__file__).name, str(error))) from None
    torch.set_num_threads(1)
    keep_memory()  # otherwise forms with large tensors pay for system calls each time
    batch, heads, length, width = (int(chosen[key]) for key in ("batch", "heads", "length", "head_width"))
    stream = torch.Generator().manual_seed(0)
    q, k, v, upstream = torch.randn(4, batch, heads, length, width, generator=stream)
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    forms: dict[str, Form] = {"plain chunks": plain, "plain chunks, no phi, no denominator": unnormalised}
    for name in chosen["pos"].split(","):
        for chunk in chosen["chunks"].split(","):
            forms[f"{chosen['attention']} + {name}, chunks of {chunk}"] = layer_form(
                name, chosen["attention"], int(chunk), Geometry(heads * width, heads, length, 1), batch
            )

    def once(form: Form) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            torch.autograd.backward(form(*leaves), upstream)

        return run

    print(f"Time over that of plain chunks: {batch} x {heads} heads of width {width}, {length:,} tokens")
    work = {name: once(form) for name, form in forms.items()}
    seconds = in_turns(work, int(chosen["rounds"]), torch.device("cpu"))
    first = seconds["plain chunks"]
    print(table(("form", "ratio"), [(name, str(ratio(times, first))) for name, times in seconds.items()]))


def layer_form(name: str, attention: str, chunk: int, geometry: Geometry, batch: int) -> Form:
    whole = build_scheme(arms(CONF / "pos")[name], geometry)
    for parameter in whole.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    scheme = whole.layer(0)
    layer: Any = build_attention(arms(CONF / "attention")[attention], geometry, scheme)
    layer.draw(torch.Generator().manual_seed(0))
    layer.chunk = chunk
    positions = whole.place(geometry.context_length, None)
    x = torch.randn(batch, geometry.context_length, geometry.width)

    def form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        whole.zero_grad(set_to_none=True)
        return layer.attend(q, k, v, Site.of(scheme, positions, x))

    return form


if __name__ == "__main__":
    main(sys.argv[1:])
