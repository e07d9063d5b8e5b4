"""A positional scheme, an attention or a whole GPT by its name, initialised as poslab trains it.

A name is an option of the command line: `rope_500k` as in pos=rope_500k, `linear` as in attention=linear. It
selects the settings in the option's file, and further arguments change them. The full name of a module, such
as `mypackage.logarithmic`, selects a part of another package. Errors are a one-line ConfigError that says
what to change and suggests similar names.

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
from poslab.config.option_files import Conf, installed_conf, load
from poslab.config.registry import find, module_name
from poslab.config.schema import ConfigError, ModelOptions
from poslab.model import attention as attentions
from poslab.model import positions as schemes
from poslab.model.attention import Attention, Site, build_attentions, mixer_class
from poslab.model.gpt import GPT, initialise
from poslab.model.positions import Geometry, LearnedOptions, Scheme, build_scheme
from poslab.study.run.identity import imported_source

Part = str | Mapping[str, Any]  # the name of an option, or a section as in its file


class CausalAttention(nn.Module):
    """Causal attention of one layer under a positional scheme, for the queries and keys of any model.

    The scheme is a submodule, so that its parameters are among those of your model.
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
        """Return for each token the values up to it, weighted by the attention of its query to their keys.

        `q` and `k` are the plain projections: this call rotates them and adds the bias. `x` is the input of
        the projections; only schemes that depend on content (fox, selective_rope) need it. For a scheme that
        reads tokens (bipe_rope), call its `read_tokens` first. `positions` must ascend; None: those of the
        scheme at evaluation, 0, 1, 2, ... except for randomised schemes. Raise ValueError for other shapes,
        for more tokens than the scheme is defined for, or if a needed `x` is missing.
        """
        site = self._site(x, positions, q=q, k=k, v=v)
        if positions is not None and self._counts_tokens(site.scheme) and bool((positions.diff() != 1).any()):
            raise ValueError(
                f"positions with gaps: attention={self.attention.name} counts the distances of "
                f"{self.scheme.name} in tokens; choose attention=softmax"
            )
        with torch.autocast(q.device.type, enabled=False):  # the attention chooses its own precision
            return self.attention.attend(q, k, v, site)

    def scores(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H T K"],
        x: Float[Tensor, "B T D"] | None = None,
        positions: Int[Tensor, "T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """Return the softmax logits of each query (row) for each key, under the scheme; -inf for later keys.

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
        """Return the weights that each query (row) gives the values: a call returns these weights times `v`.

        Forms the whole matrix, in float32 at least. Arguments and errors are those of a call.
        """
        return self.attention.weights(q, k, self._site(x, positions, q=q, k=k))

    def _site(self, x: Tensor | None, positions: Tensor | None, **projections: Tensor) -> Site:
        """Return the layer's site. Raise ValueError if queries, keys or values do not fit the scheme."""
        q = projections["q"]
        sizes = self.scheme.geometry
        expected = f"(batch, {sizes.heads}, tokens, {sizes.head_width})"
        for name, tensor in projections.items():
            shape = tuple(tensor.shape)
            if len(shape) != 4 or shape != q.shape or shape[1::2] != (sizes.heads, sizes.head_width):
                raise ValueError(f"{name} has the shape {shape}, but the scheme needs {expected}")
        length, limit = q.shape[2], self.scheme.max_length
        if limit is not None and length > limit:
            raise ValueError(f"{length} tokens, but the positional scheme is defined up to {limit}")
        layer = self.scheme.layer(self.layer)
        if x is None and layer.by_content:
            raise ValueError(f"{self.scheme.name} reads the input of the projections to q and k: pass x")
        if positions is None:
            positions = self.scheme.place(length, None)
        positions = positions.to(q.device)
        return Site(layer, positions) if x is None else Site.of(layer, positions, x)

    def _counts_tokens(self, layer: Scheme) -> bool:
        """Return whether a call computes a bias by distance, or a window, for consecutive positions only."""
        by_distance = any(map(layer.overrides, ("bias", "content_bias"))) or layer.geometry.window is not None
        return by_distance and layer.geometry.consecutive and self.attention.form != "exact"

    @property
    def kernel(self) -> str:
        """The name of the kernel that the last call ran, such as `torch flash (cpu)`."""
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
    """Build the positional scheme that `pos=name` selects, for a model of these sizes.

    `width` is the model's width (`heads` times the head width), and `context_length` the training length L in
    tokens. The default sizes are those of `model=nano` (width 128, 4 heads, 4 layers, L = 128). `options` are
    the scheme's options in docs/settings.md, such as `base=500_000` for rope. `seed` sets the initial values
    of its parameters, as in a run. Raise ConfigError if an argument is wrong.

    In your own model, call `embed` on the input of the first layer (sinusoidal, learned); `poslab.attention`
    applies all other hooks. `rates` returns the factors on the learning rate with which poslab trains the
    scheme's parameters.
    """
    _check_whole("seed", seed, 0)
    geometry, _ = _sizes("nano", width, heads, layers, context_length)
    built = build_scheme({**scheme_section(name), **options}, geometry)
    initialise(built, seed, geometry.layers, "scheme")
    return built


def attention(
    name: Part, scheme: Scheme, *, layer: int = 0, seed: int = 0, **options: Any
) -> CausalAttention:
    """Build the attention that `attention=name` selects, for one layer of a model under `scheme`.

    `scheme` comes from `poslab.scheme` and has the sizes; the scheme `none` has no effect. Build one scheme
    for all layers, and one attention per layer, with the layer's number (from 0) as `layer`. `options` are
    those of the attention, such as `features=128` for performer, and `seed` sets its random numbers. Raise
    ConfigError if the two cannot work together.
    """
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"scheme={scheme!r}: pass a scheme, such as poslab.scheme('rope')")
    _check_whole("seed", seed, 0)
    sizes = scheme.geometry
    if not 0 <= layer < sizes.layers:
        raise ConfigError(f"layer={layer}: the scheme is for {sizes.layers} layers, counted from 0")
    schemes = [scheme.layer(number) for number in range(sizes.layers)]
    built = build_attentions({**_attention(name), **options}, sizes, schemes)[layer]
    if not isinstance(built, Attention):
        raise ConfigError(
            f"attention.kind={built.name} mixes hidden states and takes no queries and keys: "
            "use it in poslab.gpt"
        )
    initialise(built, seed, sizes.layers, f"blocks.{layer}.attention")
    return CausalAttention(built, scheme, layer)


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
    """Build the GPT that poslab trains, with the initial weights of a run with this seed.

    `pos`, `attention` and `model` are names of options, as on the command line. `pos` and `attention` may
    also be sections as in an option's file, such as `{"scheme": "rope", "base": 500_000}`: keys that are left
    out take the file's values. The default sizes are those of `model`; `vocabulary` is the number of tokens,
    256 for bytes. Called with tokens (B, T), the GPT returns the logits (B, T, vocabulary) of the token after
    each. Without `causal`, every token also attends to later tokens. Raise ConfigError if parts do not exist
    or cannot work together.
    """
    sizes, block = _sizes(model, width, heads, layers, context_length)
    geometry = replace(sizes, causal=causal)
    _check_whole("vocabulary", vocabulary, 1)
    _check_whole("seed", seed, 0)
    built = build_scheme(scheme_section(pos), geometry)
    section = _attention(attention)
    by_layer = [built.layer(index) for index in range(geometry.layers)]
    mixers = build_attentions(section, geometry, by_layer)
    network = GPT(vocabulary, geometry, built, mixers, block)
    network.initialise(seed)
    return network


def _check_whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}: it must be a whole number, at least {least}")


def _sizes(
    model: str,
    width: int | None = None,
    heads: int | None = None,
    layers: int | None = None,
    context_length: int | None = None,
) -> tuple[Geometry, ModelOptions]:
    size = load(installed_conf().file("model", model))
    sizes = {"width": width, "heads": heads, "layers": layers}
    changed = {name: value for name, value in sizes.items() if value is not None}
    checked = check(ModelOptions, {**size["model"], **changed}, "model")
    length = size["context_length"] if context_length is None else context_length
    _check_whole("context_length", length, 1)
    return Geometry(checked.width, checked.heads, length, checked.layers), checked


def scheme_section(part: Part, conf: Conf | None = None) -> dict[str, Any]:
    """Return the section `pos` that `part` stands for; `conf` has the option files (default: the installed).

    Raise ConfigError if there is no such scheme.
    """
    section = _section("pos", "scheme", schemes.__name__, part, conf or installed_conf())
    kind = find(section.get("scheme"), Scheme, schemes.__name__, "pos.scheme")
    imported_source(kind.__module__)  # so that a later change of its file is noticed
    # If no file sets a rate, a scheme's parameters have the model's learning rate.
    rate = {"rate": 1.0} if issubclass(kind.options_class, LearnedOptions) else {}
    return {**rate, **section}


def _attention(part: Part) -> dict[str, Any]:
    section = _section("attention", "kind", attentions.__name__, part, installed_conf())
    imported_source(mixer_class(section).__module__)  # so that a later change of its file is noticed
    return section


def _section(group: str, selector: str, package: str, part: Part, conf: Conf) -> dict[str, Any]:
    """Return the section of a part; keys that a mapping leaves out take the values in the option's file."""
    if not isinstance(part, str | Mapping):
        raise ConfigError(f"{group}={part!r}: pass the name of an option, or a mapping like its file")
    if isinstance(part, str):
        if part in conf.options(group) or "." not in part:
            return dict(load(conf.file(group, part)))
        part = {selector: part}
    name = str(part.get(selector))
    if name in conf.options(group):
        return {**load(conf.file(group, name)), **part}
    # A file may use a name that a package declares, while the caller uses the module's full name.
    module = module_name(name, package)
    matching = [
        section
        for section in sections(conf, group).values()
        if module_name(str(section.get(selector)), package) == module
    ]
    return {**next(iter(matching), {}), **part}
