"""Compare a training step with other libraries': python benchmarks/peers.py --nanogpt PATH/model.py

Forward, backward and AdamW of poslab's GPT under several schemes, of nanoGPT's model (Karpathy; its model.py
is loaded from the path that you give) and of x-transformers, if that is installed, with the same layers,
width, heads, vocabulary, windows and optimizer. They take turns step by step, and ratios are taken within
rounds. nanoGPT is included a second time with GPT-2's activation, which poslab uses. With --size llama_nano
the peer is Llama in plain PyTorch (plain_llama.py). x-transformers need not be installed into this project's
environment:

    uv pip install --target DIR --no-deps x-transformers torch-einops-utils einops einx loguru frozendict
    PYTHONPATH=DIR python benchmarks/peers.py --nanogpt PATH/model.py
"""

import argparse
import contextlib
import importlib.util
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from in_turns import Ratio, in_turns, ratio, table
from plain_llama import PlainLlama
from poslab.config.compose import arms
from poslab.config.schema import GPT2_BLOCK, BlockOptions, ConfigError
from poslab.model.attention import Mixer, build_attentions
from poslab.model.block import SwiGLU
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, Scheme, build_scheme

CONF = Path(__file__).parent.parent / "conf"
SCHEMES = ("none", "learned", "rope", "alibi", "t5")
TOKENS_A_STEP = 4_096  # on a CPU; the batch of nano
NANOGPT = "nanoGPT learned"
PLAIN_LLAMA = "plain Llama rope"
LLAMA_BLOCK = BlockOptions(norm="rms", mlp="swiglu", bias=False)
TANH = "nanoGPT, tanh GELU"  # the activation of GPT-2 and poslab, slower than nanoGPT's exact one

# Settings of x-transformers' Decoder and TransformerWrapper for each scheme. Its learned embedding is on by
# default. The width that its rotary embedding rotates in a head is set below.
X_TRANSFORMERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {"use_abs_pos_emb": False}),
    "learned": ({}, {"use_abs_pos_emb": True}),
    "rope": ({"rotary_pos_emb": True}, {"use_abs_pos_emb": False}),
    "alibi": ({"alibi_pos_bias": True}, {"use_abs_pos_emb": False}),
    "t5": ({"rel_pos_bias": True}, {"use_abs_pos_emb": False}),
}


@dataclass(frozen=True)
class Size:
    """The shapes that all compared models share."""

    layers: int
    width: int
    heads: int
    context_length: int
    vocabulary: int
    windows: int  # per step
    block: BlockOptions = GPT2_BLOCK

    @property
    def tokens(self) -> int:
        return self.windows * self.context_length


@dataclass(frozen=True)
class Contender:
    """A model with a function `step` that takes one training step."""

    name: str
    model: nn.Module
    step: Callable[[], Tensor]
    note: str = ""  # how it computes attention


SHAPE = "layers", "width", "heads", "context_length"


def sizes() -> dict[str, dict[str, Any]]:
    """Return the SHAPE of each file in conf/model."""
    files = arms(CONF / "model").items()
    return {name: {key: {**file["model"], **file}[key] for key in SHAPE} for name, file in files}


def block_of(name: str) -> BlockOptions:
    """Return the block of a file in conf/model."""
    model = arms(CONF / "model")[name]["model"]
    return BlockOptions(**{key: value for key, value in model.items() if key not in SHAPE})


def training(
    name: str,
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    size: Size,
    device: torch.device,
    dtype: torch.dtype,
    note: str = "",
) -> Contender:
    """Return a model trained by AdamW on one fixed batch, under autocast unless `dtype` is float32."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), fused=True)
    stream = torch.Generator().manual_seed(0)
    drawn = torch.randint(size.vocabulary, (size.windows, size.context_length + 1), generator=stream)
    inputs, targets = drawn[:, :-1].contiguous().to(device), drawn[:, 1:].contiguous().to(device)

    def step() -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype != torch.float32):
            value = loss(inputs, targets)
        torch.autograd.backward(value)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.detach()

    return Contender(name, model, step, note)


def poslab_gpt(
    pos: str, attention: str, size: Size, device: torch.device, dtype: torch.dtype, compiled: bool = False
) -> Contender:
    """Return poslab's GPT. Raises ConfigError if scheme and attention do not work together."""
    geometry = Geometry(size.width, size.heads, size.context_length, size.layers)
    section = arms(CONF / "attention")[attention]
    with torch.device(device):
        scheme = build_scheme(arms(CONF / "pos")[pos], geometry)
        layers = [scheme.layer(index) for index in range(size.layers)]
        attentions = build_attentions(section, geometry, layers)
        gpt = GPT(size.vocabulary, geometry, scheme, attentions, size.block)
    with torch.no_grad():
        for parameter in gpt.parameters():
            if (
                parameter.ndim >= 2
            ):  # as in GPT-2; GPT.initialise draws on the CPU, which takes seconds at larger sizes
                parameter.normal_(0, 0.02)
    parts: list[Scheme | Mixer] = [scheme, *attentions]
    for part in parts:
        part.draw(torch.Generator().manual_seed(0))  # values that their constructors leave unset
    if compiled:
        gpt.compile_blocks()
    stream = torch.Generator().manual_seed(0)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        logits = gpt(inputs, positions=scheme.place(size.context_length, stream))
        return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return training(f"poslab {pos} {attention}", gpt, loss, size, device, dtype)


def nanogpt(
    path: Path,
    size: Size,
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool = False,
    tanh: bool = False,
) -> Contender:
    """Return nanoGPT's model from its model.py; `compiled` as a whole, as in its train.py."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks up its own module here
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=size.context_length,
        vocab_size=size.vocabulary,
        n_layer=size.layers,
        n_head=size.heads,
        n_embd=size.width,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its size
        model = module.GPT(config)
    for module in model.modules():
        if tanh and isinstance(module, nn.GELU):
            module.approximate = "tanh"
    forward: Callable[..., Any] = torch.compile(model) if compiled else model

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = forward(inputs, targets)[1]  # the model's own loss, as in its train.py
        return value

    name = TANH if tanh else NANOGPT
    return training(name, model, loss, size, device, dtype, "scaled_dot_product_attention")


def plain_llama(size: Size, device: torch.device, dtype: torch.dtype) -> Contender:
    """Return Llama in plain PyTorch."""
    hidden = SwiGLU(size.width, BlockOptions()).expand.rows[0]
    model = PlainLlama(size.layers, size.width, size.heads, hidden, size.context_length, size.vocabulary)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())

    return training(PLAIN_LLAMA, model, loss, size, device, dtype, "scaled_dot_product_attention")


def x_transformers(pos: str, size: Size, device: torch.device, dtype: torch.dtype) -> Contender | None:
    """Return x-transformers' model with a scheme and, if possible, flash attention; None: not installed."""
    if importlib.util.find_spec("x_transformers") is None:
        return None
    from x_transformers import Decoder, TransformerWrapper  # type: ignore[import-not-found]

    layer_options, options = X_TRANSFORMERS[pos]
    head_width = size.width // size.heads
    if pos == "rope":
        layer_options = {**layer_options, "rotary_emb_dim": head_width}
    for flash in (True, False):
        try:
            layers = Decoder(
                dim=size.width,
                depth=size.layers,
                heads=size.heads,
                attn_dim_head=head_width,
                attn_flash=flash,
                **layer_options,
            )
        except AssertionError:  # a learned bias has no flash form there
            continue
        model = TransformerWrapper(
            num_tokens=size.vocabulary,
            max_seq_len=size.context_length,
            attn_layers=layers,
            tie_embedding=True,
            **options,
        )

        def loss(inputs: Tensor, targets: Tensor, model: nn.Module = model) -> Tensor:
            return cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())

        note = "flash" if flash else "no flash"
        return training(f"x-transformers {pos}", model, loss, size, device, dtype, note)
    raise SystemExit(f"x-transformers has {pos} neither with flash attention nor without")


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def show(contenders: Sequence[Contender], seconds: dict[str, list[float]], size: Size, cuda: bool) -> str:
    """Return a table: tokens per second over nanoGPT's or Llama's, and over x-transformers' (same scheme)."""
    rows = []
    for contender in contenders:
        name = contender.name
        peer = f"x-transformers {name.split()[1]}"
        first = PLAIN_LLAMA if PLAIN_LLAMA in seconds else NANOGPT
        over: list[Ratio | None] = [
            ratio(seconds[rival], seconds[name]) if rival in seconds and rival != name else None
            for rival in (first, peer)
        ]
        if name.startswith("x-transformers"):
            over[1] = None
        kernel = getattr(contender.model, "kernel", "") or contender.note
        row = [
            name,
            kernel,
            f"{parameters(contender.model):,}",
            *("" if gain is None else str(gain) for gain in over),
        ]
        if cuda:
            middle = sorted(seconds[name])[len(seconds[name]) // 2]
            row.append(f"{size.tokens / middle:,.0f}")
        rows.append(row)
    header = [
        "tokens per second",
        "attention",
        "parameters",
        "over plain Llama" if PLAIN_LLAMA in seconds else "over nanoGPT",
        "over x-transformers (same scheme)",
    ]
    return table(header + (["per second"] if cuda else []), rows)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--nanogpt", type=Path, metavar="PATH/model.py", help="nanoGPT's model")
    parser.add_argument("--size", choices=list(sizes()), default="nano", help="shapes of conf/model")
    for name in SHAPE:
        parser.add_argument(f"--{name}", type=int, help="overrides the value of --size")
    parser.add_argument("--vocabulary", type=int, default=257)
    parser.add_argument("--windows", type=int, help=f"per step; default: {TOKENS_A_STEP:,} tokens in total")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--attentions", default="flash,linear")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compile", action="store_true", help="compile poslab's blocks and nanoGPT's model")
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    shape, block = sizes()[options.size], block_of(options.size)
    shape |= {name: getattr(options, name) for name in shape if getattr(options, name) is not None}
    windows = options.windows or max(1, TOKENS_A_STEP // shape["context_length"])
    size = Size(**shape, vocabulary=options.vocabulary, windows=windows, block=block)
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    if device.type == "cpu":
        torch.set_num_threads(1)
    contenders: list[Contender] = []
    if block == LLAMA_BLOCK:
        contenders.append(plain_llama(size, device, dtype))
    elif options.nanogpt is not None:
        contenders += [
            nanogpt(options.nanogpt, size, device, dtype, options.compile, tanh) for tanh in (False, True)
        ]
    for pos in options.schemes.split(","):
        for attention in options.attentions.split(","):
            try:
                contenders.append(poslab_gpt(pos, attention, size, device, dtype, options.compile))
            except ConfigError as error:
                print(error, file=sys.stderr)
        if (
            block == GPT2_BLOCK
            and pos in X_TRANSFORMERS
            and (peer := x_transformers(pos, size, device, dtype)) is not None
        ):
            contenders.append(peer)
    seconds = in_turns({contender.name: contender.step for contender in contenders}, options.rounds, device)
    print(
        f"{size.layers} layers of width {size.width}, {size.windows} windows of {size.context_length} "
        f"tokens, {options.dtype} on {options.device}: medians of {options.rounds} rounds, 95 % intervals\n"
    )
    print(show(contenders, seconds, size, device.type == "cuda"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
