"""Check that a positional scheme keeps its contract, without knowledge of its formula.

The checks use random parameters in float64, under every attention that the scheme works with. `poslab
check-scheme` runs them for a scheme of your own. The project's tests run them for its schemes, which they
also compare with formulas and other implementations.

Shapes: H heads, T tokens, K head width, D model width.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.config.schema import ConfigError
from poslab.model.attention import Attention, Site, build_attention, build_attentions
from poslab.model.positions import Geometry, Scheme, build_scheme

HEADS, HEAD_WIDTH, LENGTH, SHIFT = 4, 16, 150, 23  # LENGTH: several strips and chunks, past T5's horizon
CHUNKS = (16, 48, 256)
VOCABULARY = 256
TOLERANCE = 1e-9  # absolute and relative, of float64


@dataclass(frozen=True)
class Outcome:
    """The result of a check."""

    title: str
    passed: bool | None  # None: skipped
    note: str = ""  # why the check failed or was skipped, or what it left out


def sees_later_tokens(
    logits: Callable[[Int[Tensor, "1 T"]], Float[Tensor, "1 T V"]],
    vocabulary: int,
    length: int = 16,
    rounding: float = 1e-4,
) -> bool:
    """Return whether changing the tokens of a window's second half changes the logits of its first half.

    The mean absolute change has to exceed `rounding` times the logits' standard deviation.
    """
    half = length // 2
    tokens = torch.randint(vocabulary, (1, length), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, half:] = (tokens[:, half:] + 1) % vocabulary
    before, after = (logits(window)[:, :half].float() for window in (tokens, changed))
    return bool((after - before).abs().mean() > rounding * before.std())


def check_scheme(
    section: Mapping[str, Any], attentions: Mapping[str, Mapping[str, Any]]
) -> Iterator[Outcome]:
    """Check the scheme of a `pos` section by itself, then under each of the named `attention` sections.

    Raise ConfigError if the scheme cannot be built.
    """
    geometry = Geometry(HEADS * HEAD_WIDTH, HEADS, context_length=LENGTH // 2, layers=4)
    trial = _Trial(section, geometry)
    for title, check in (
        ("its hooks keep shapes, and at least one has an effect", trial.shapes),
        ("its logits change with a shift as `shift_invariant` says", trial.shift),
        ("its bias is geometric where `tail` says so", trial.tail),
        ("its parameters have gradients", trial.gradients),
    ):
        yield _outcome(title, check)
    schemes = [trial.whole.layer(index) for index in range(geometry.layers)]
    for name, attention in attentions.items():
        try:
            built = build_attentions(attention, geometry, schemes)[0]
        except ConfigError as error:
            yield Outcome(f"under attention={name}", None, f"refused: {error}")
            continue
        where = f"under attention={name}"
        if not isinstance(built, Attention):
            yield Outcome(where, None, "it has no matrix of weights")
            continue
        yield _outcome(f"{where}: causal", partial(trial.causal, attention))
        yield _outcome(f"{where}: equal to plain products, with gradients", partial(trial.plain, attention))
        if hasattr(built, "chunk"):
            yield _outcome(f"{where}: the chunk size has no effect", partial(trial.chunks, attention))


def _outcome(title: str, check: Callable[[], str]) -> Outcome:
    """Run a check, which returns a note on what it left out. Any error except _NotTriedError is a failure."""
    try:
        return Outcome(title, True, check())
    except _NotTriedError as error:
        return Outcome(title, None, str(error))
    except AssertionError as error:
        return Outcome(title, False, " ".join(str(error).split())[:300])
    except Exception as error:
        return Outcome(title, False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


class _NotTriedError(Exception):
    """A check does not apply to the scheme; the message says why."""


class _Trial:
    """A scheme with random parameters, and random inputs for it."""

    def __init__(self, section: Mapping[str, Any], geometry: Geometry) -> None:
        self.geometry = geometry
        self.whole = build_scheme(section, geometry).double()
        stream = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in self.whole.parameters():
                values = torch.randn(parameter.shape, generator=stream, dtype=torch.float64)
                parameter.copy_(values)
        self.scheme: Scheme = self.whole.layer(0)
        self.length = min(LENGTH, self.whole.max_length or LENGTH)
        self.whole.read_tokens(torch.randint(VOCABULARY, (1, self.length), generator=stream))
        shape = (1, HEADS, self.length, HEAD_WIDTH)
        self.q, self.k, self.v = (torch.randn(shape, generator=stream, dtype=torch.float64) for _ in range(3))
        self.x = torch.randn(1, self.length, geometry.width, generator=stream, dtype=torch.float64)

    def attention(self, section: Mapping[str, Any]) -> Attention:
        built = build_attention(section, self.geometry, self.scheme)
        assert isinstance(built, Attention)  # other mixers are skipped
        built.draw(torch.Generator().manual_seed(5))
        return built.double()

    def site(self, length: int, x: Tensor | None = None) -> Site:
        return Site.of(self.scheme, self.whole.place(length, None), self.x[:, :length] if x is None else x)

    def shapes(self) -> str:
        scheme, positions = self.scheme, self.whole.place(self.length, None)
        assert positions.shape == (self.length,), f"place returns the shape {tuple(positions.shape)}"
        assert bool((positions.diff() > 0).all()), "place returns positions that do not ascend"
        embedded = self.whole.embed(self.x, positions)
        assert embedded.shape == self.x.shape, f"embed returns the shape {tuple(embedded.shape)}"
        half = self.length // 2
        first = self.whole.embed(self.x[:, :half], positions[:half])
        _assert_close(embedded[:, :half], first, "later tokens change what embed returns for earlier ones")
        features = scheme.logit_features(self.q)
        assert features.shape == self.q.shape, f"logit_features returns the shape {tuple(features.shape)}"
        site = self.site(self.length)
        angles, pairs = site.angles, (1, HEADS, self.length, HEAD_WIDTH // 2)
        assert angles is None or angles.shape == pairs, f"angles has shape {tuple(angles.shape)}, not {pairs}"
        turned = site.turned_queries(features), site.turned_keys(features)
        assert turned[0].shape == turned[1].shape, "rotated queries and keys have different shapes"
        bias = scheme.pairwise_bias(positions, positions)
        gates = site.log_gates
        square = (HEADS, self.length, self.length)
        assert bias is None or bias.shape == square, f"the bias has the shape {bias.shape}, not {square}"
        assert gates is None or gates.shape == (1, HEADS, self.length), "log_gates is not (B, H, T)"
        assert gates is None or bool((gates <= 0).all()), "log_gates returns values above 0"
        content = site.content_bias or ()  # r and its table
        if site.content_bias is not None:
            r, table = site.content_bias
            assert r.shape == (1, HEADS, self.length, len(table)), f"content_bias has r of {tuple(r.shape)}"
        for tensor in (embedded, *turned, bias, gates, *content):
            assert tensor is None or bool(torch.isfinite(tensor).all()), "a hook returns non-finite values"
        acts = (
            not torch.equal(embedded, self.x),
            any(x.shape != self.q.shape or not torch.equal(x, self.q) for x in turned),
            bias is not None,
            gates is not None,
            site.content_bias is not None,
            scheme.overrides("score_bias"),
            scheme.overrides("products"),
        )
        assert any(acts) or self.scheme.name == "none", "no hook has an effect"
        return ""

    def shift(self) -> str:
        length = min(self.length - SHIFT, 50)
        if length < 2:
            raise _NotTriedError("the scheme is defined for too few tokens")
        start = torch.arange(length)
        same = torch.allclose(self._logits(start), self._logits(start + SHIFT), atol=1e-8, rtol=1e-8)
        claimed = self.whole.shift_invariant
        if claimed:
            assert same, f"shift_invariant is True, but logits change when tokens move by {SHIFT}"
        return "" if claimed or not same else "shift_invariant is False, but logits do not change here"

    def _logits(self, positions: Tensor) -> Tensor:
        x, q, k = (part[..., : len(positions), :] for part in (self.x, self.q, self.k))
        embedded = self.whole.embed(x, positions) - x
        scores = self.attention({"kind": "softmax"}).scores(q, k, Site.of(self.scheme, positions, x))
        return scores + embedded.sum(dim=-1)[:, None, :, None]  # a change of the input changes the logits

    def tail(self) -> str:
        bias, tail = self.scheme.bias(torch.arange(2)), self.scheme.tail()
        if bias is None or tail is None:
            raise _NotTriedError("the scheme has no bias by distance, or no `tail`")
        distances = torch.arange(tail.horizon, tail.horizon + 200)
        values = self.scheme.bias(distances)
        assert values is not None
        steps = values.double().diff(dim=-1)
        expected = tail.log_decay.double()[:, None].expand_as(steps)
        _assert_close(steps, expected, f"past {tail.horizon} tokens the bias does not change by log_decay")
        return ""

    def gradients(self) -> str:
        learned = {name: weight for name, weight in self.whole.named_parameters() if weight.requires_grad}
        if not learned:
            raise _NotTriedError("the scheme has no parameters")
        embedded = self.whole.embed(self.x, self.whole.place(self.length, None))
        output = self.attention({"kind": "softmax"}).attend(self.q, self.k, self.v, self.site(self.length))
        total = output.square().sum() + embedded.square().sum()
        gradients = torch.autograd.grad(total, list(learned.values()), allow_unused=True)
        unused = [name for name, gradient in zip(learned, gradients, strict=True) if gradient is None]
        first = [name for name in unused if self.whole.layer(0) is self.whole]
        assert not first, f"no output depends on its parameters {', '.join(first)}"
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None)
        assert finite, "a gradient is not finite"
        return ""

    def causal(self, section: Mapping[str, Any]) -> str:
        """Check that later tokens change no earlier outputs; with `length_dependent`, their number may."""
        built, cut = self.attention(section), self.length // 2
        before = built.attend(self.q, self.k, self.v, self.site(self.length))[..., :cut, :]
        later = (torch.arange(self.length) >= cut).double()[:, None]
        q, k, v, x = (tensor + later for tensor in (self.q, self.k, self.v, self.x))
        after = built.attend(q, k, v, self.site(self.length, x))[..., :cut, :]
        _assert_close(after, before, "later tokens change the output of an earlier one")
        if self.whole.length_dependent:
            return "the number of later tokens may matter: length_dependent is True"
        q, k, v = (x[..., :cut, :] for x in (self.q, self.k, self.v))
        shorter = built.attend(q, k, v, self.site(cut))
        _assert_close(shorter, before, "the number of later tokens changes the output of an earlier one")
        return ""

    def plain(self, section: Mapping[str, Any]) -> str:
        """Compare outputs, and gradients of all inputs and parameters, with those of the T x T weights."""
        results = []
        for by_weights in (False, True):
            built = self.attention(section)
            q, k, v, x = leaves = [part.clone().requires_grad_() for part in (self.q, self.k, self.v, self.x)]
            site = self.site(self.length, x)
            output = built.weights(q, k, site) @ v if by_weights else built.attend(q, k, v, site)
            upstream = torch.randn(
                output.shape, generator=torch.Generator().manual_seed(3), dtype=output.dtype
            )
            inputs = [*leaves, *self.scheme.learned()]
            gradients = torch.autograd.grad(output, inputs, upstream, allow_unused=True)
            results.append([output, *(torch.zeros(()) if x is None else x for x in gradients)])
        for number, (tensor, reference) in enumerate(zip(*results, strict=True)):
            name = "a gradient" if number else "the output"
            _assert_close(tensor, reference, f"{name} differs from that of plain products")
        return ""

    def chunks(self, section: Mapping[str, Any]) -> str:
        outputs = []
        for chunk in CHUNKS:
            built: Any = self.attention(section)
            built.chunk = chunk
            outputs.append(built.attend(self.q, self.k, self.v, self.site(self.length)))
        for output in outputs[1:]:
            _assert_close(output, outputs[0], "the output changes with the chunk size")
        return ""


def _assert_close(x: Tensor, reference: Tensor, message: str) -> None:
    if not torch.allclose(x, reference, atol=TOLERANCE, rtol=TOLERANCE):
        raise AssertionError(f"{message}: by up to {(x - reference).abs().max().item():.2g}")
