"""A positional scheme, an attention or a whole GPT by its name, initialised as poslab trains it.

A name is that of an option of the command line: `rope_500k` of pos=rope_500k, `linear` of attention=linear.
It stands for the settings in the option's file, which further arguments change. The full name of a module,
such as `mypackage.logarithmic`, gives a part of another package. What cannot work raises ConfigError, one
line that says what to change and which names are near.

Shapes: B batch, H heads, T tokens, K head width, D model width.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poslab.config.checking import check
from poslab.config.compose import sections
from poslab.config.option_files import installed_conf, load
from poslab.config.registry import find, module_name
from poslab.config.schema import ConfigError, ModelOptions
from poslab.model import attention as attentions
from poslab.model import positions as schemes
from poslab.model.attention import Attention, Mixer, Site, build_attention
from poslab.model.gpt import GPT, initialise
from poslab.model.positions import Geometry, LearnedOptions, Scheme, build_scheme

Part = str | Mapping[str, Any]  # the name of an option, or a section as its file has it


class CausalAttention(nn.Module):
    """Causal attention of one layer under a positional scheme, for the queries and keys of any model.

    The scheme is a submodule, so that what it learns is among the parameters of the model that holds this.
    """

    def __init__(self, attention: Attention, scheme: Scheme, layer: int) -> None:
        super().__init__()
        self.scheme = scheme
        self.attention = attention
        self.layer = layer

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        v: Float[Tensor, "B H T K"],
        x: Float[Tensor, "B T D"] | None = None,
        positions: Int[Tensor, "T"] | None = None,
    ) -> Float[Tensor, "B H T K"]:
        """The values up to each token, mixed by how well its query fits their keys.

        `q` and `k` come as they are projected: the scheme turns them and adds its bias here. `x` is what they
        are projected from, which schemes with gates (fox) need and others leave alone. `positions` ascend;
        None: where the scheme places the tokens at evaluation, 0, 1, 2, ... but for randomised ones. Raises
        ValueError for other shapes, more tokens than the scheme is defined for, or a missing `x`.
        """
        site = self._site(x, positions, q=q, k=k, v=v)
        with torch.autocast(q.device.type, enabled=False):  # each attention chooses its own precision
            return self.attention.attend(q, k, v, site)

    def scores(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        x: Float[Tensor, "B T D"] | None = None,
        positions: Int[Tensor, "T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """Softmax's logits of each query (row) on each key, under the scheme; -inf for keys it cannot see.

        Forms the whole matrix, in float32 at least. Arguments and errors are those of a call.
        """
        return self.attention.scores(q, k, self._site(x, positions, q=q, k=k))

    def weights(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        x: Float[Tensor, "B T D"] | None = None,
        positions: Int[Tensor, "T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """How much of each key's value each query (row) takes: a call returns these weights times `v`.

        Forms the whole matrix, in float32 at least. Arguments and errors are those of a call.
        """
        return self.attention.weights(q, k, self._site(x, positions, q=q, k=k))

    def _site(self, x: Tensor | None, positions: Tensor | None, **given: Tensor) -> Site:
        """Where the layer works. Raises ValueError where queries, keys or values do not fit the scheme."""
        q = given["q"]
        sizes = self.scheme.geometry
        expected = f"(batch, {sizes.heads}, tokens, {sizes.head_width})"
        for name, each in given.items():
            if each.ndim != 4 or each.shape != q.shape or each.shape[1::2] != (sizes.heads, sizes.head_width):
                raise ValueError(
                    f"{name} has the shape {tuple(each.shape)}, and the scheme is for {expected}"
                )
        length, limit = q.shape[2], self.scheme.max_length
        if limit is not None and length > limit:
            raise ValueError(f"{length} tokens, but the positional scheme is defined up to {limit}")
        layer = self.scheme.layer(self.layer)
        if x is None and type(layer).log_gates is not Scheme.log_gates:
            raise ValueError(
                f"the gates of {self.scheme.name} come from what q and k are projected from: give x"
            )
        if positions is None:
            positions = self.scheme.place(length, None)
        return Site(layer, positions.to(q.device), None if x is None else layer.log_gates(x))

    @property
    def kernel(self) -> str:
        """The code that the last call ran, such as `torch flash (cpu)`."""
        return self.attention.kernel


def scheme(
    name: Part = "rope",
    *,
    width: int | None = None,
    heads: int | None = None,
    layers: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Scheme:
    """The positional scheme that `pos=name` chooses, for a model of these sizes.

    `width` is that of the model, `heads` times the width of a head, and `context_length` the training length
    L in tokens; a size that is not given is that of `model=nano` (width 128, 4 heads, 4 layers, L = 128).
    `options` are those of the scheme in docs/settings.md, such as `base=500_000` of rope. `seed` decides the
    initial values of what it learns, as it does in a run. Raises ConfigError.

    In a model of your own, `embed` changes the input of the first layer (sinusoidal, learned), and
    `poslab.attention` applies all else. `rates` says at which multiple of the learning rate its parameters
    are trained here.
    """
    _check_seed(seed)
    geometry = _sizes("nano", width, heads, layers, context_length)
    return _scheme({**_pos(name), **options}, geometry, seed)


def attention(
    name: Part, scheme: Scheme, *, layer: int = 0, seed: int = 0, **options: Any
) -> CausalAttention:
    """The attention that `attention=name` chooses, for one layer of a model under `scheme`.

    `scheme` comes from `poslab.scheme` and has the sizes; the one called none has no effect. One scheme
    serves all layers: each has an attention of its own, with its number as `layer`, from 0. `options` are
    those of the attention, such as `features=128` of performer, and `seed` decides its random numbers.
    Raises ConfigError where the two cannot work together.
    """
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"scheme={scheme!r}: give the scheme itself, such as poslab.scheme('rope')")
    _check_seed(seed)
    sizes = scheme.geometry
    if not 0 <= layer < sizes.layers:
        raise ConfigError(f"layer={layer}: the scheme is for {sizes.layers} layers, counted from 0")
    made = build_attention({**_attention(name), **options}, sizes, scheme.layer(layer))
    if not isinstance(made, Attention):
        raise ConfigError(
            f"attention.kind={made.name} mixes hidden states and takes no queries and keys: "
            "use it in poslab.gpt"
        )
    initialise(made, seed, sizes.layers, f"blocks.{layer}.attention")
    return CausalAttention(made, scheme, layer)


def gpt(
    pos: Part = "rope",
    attention: Part = "flash",
    *,
    model: str = "nano",
    vocabulary: int = 256,
    width: int | None = None,
    heads: int | None = None,
    layers: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
    causal: bool = True,
) -> GPT:
    """The GPT that poslab trains, with its initial weights: those of a run with this seed.

    `pos`, `attention` and `model` are names of options, as on the command line. `pos` and `attention` may
    also be sections as an option's file has them, such as `{"scheme": "rope", "base": 500_000}`: the keys
    that are left out are those of the file. Sizes that are not given are those of `model`, and `vocabulary`
    is how many tokens there are, 256 for bytes. Called with tokens (B, T) it gives the logits (B, T,
    vocabulary) of the token after each. Without `causal`, every token sees those after it too. Raises
    ConfigError where parts do not exist or cannot work together.
    """
    geometry = replace(_sizes(model, width, heads, layers, context_length), causal=causal)
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < 1:
        raise ConfigError(f"vocabulary={vocabulary!r}: it must be a whole number of tokens, at least 1")
    _check_seed(seed)
    built = build_scheme(_pos(pos), geometry)
    section = _attention(attention)
    each = [build_attention(section, geometry, built.layer(index)) for index in range(geometry.layers)]
    made = GPT(vocabulary, geometry, built, each)
    made.initialise(seed)
    return made


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed={seed!r}: it must be a whole number, at least 0")


def _sizes(
    model: str,
    width: int | None = None,
    heads: int | None = None,
    layers: int | None = None,
    context_length: int | None = None,
) -> Geometry:
    size = load(installed_conf().file("model", model))
    given = {"width": width, "heads": heads, "layers": layers}
    changed = {name: value for name, value in given.items() if value is not None}
    checked = check(ModelOptions, {**size["model"], **changed}, "model")
    length = size["context_length"] if context_length is None else context_length
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ConfigError(f"context_length={length!r}: it must be a whole number of tokens, at least 1")
    return Geometry(checked.width, checked.heads, length, checked.layers)


def _scheme(section: Mapping[str, Any], geometry: Geometry, seed: int) -> Scheme:
    made = build_scheme(section, geometry)
    initialise(made, seed, geometry.layers, "scheme")
    return made


def _pos(part: Part) -> dict[str, Any]:
    section = _section("pos", "scheme", schemes.__name__, part)
    kind = find(section.get("scheme"), Scheme, schemes.__name__, "pos.scheme")
    # Where no file says a rate, what a scheme learns has the model's.
    rate = {"rate": 1.0} if issubclass(kind.options_class, LearnedOptions) else {}
    return {**rate, **section}


def _attention(part: Part) -> dict[str, Any]:
    section = _section("attention", "kind", attentions.__name__, part)
    find(section.get("kind"), Mixer, attentions.__name__, "attention.kind")
    return section


def _section(group: str, selector: str, package: str, part: Part) -> dict[str, Any]:
    """The section of a part; of one that is described, what is left out is as its option's file has it."""
    conf = installed_conf()
    if not isinstance(part, str | Mapping):
        raise ConfigError(f"{group}={part!r}: give the name of an option, or a mapping such as its file has")
    if isinstance(part, str):
        if part in conf.options(group) or "." not in part:
            return dict(load(conf.file(group, part)))
        part = {selector: part}
    name = str(part.get(selector))
    if name in conf.options(group):
        return {**load(conf.file(group, name)), **part}
    # A file may have the name that a package declares, and the caller the module's full name.
    module = module_name(name, package)
    of_part = [
        each
        for each in sections(conf, group).values()
        if module_name(str(each.get(selector)), package) == module
    ]
    return {**next(iter(of_part), {}), **part}
