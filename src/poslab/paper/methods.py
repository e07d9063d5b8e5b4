"""The methods section of a paper on a study, with all numbers taken from the records."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from poslab.analysis.arms import block
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.learning_rates import scheme_rates
from poslab.analysis.protocols import loss_at_length
from poslab.analysis.results import Results
from poslab.config.registry import named_in
from poslab.config.text import counted, listing, plain, rate_text
from poslab.paper.latex import MARK
from poslab.paper.references import cited, optimizer
from poslab.record.measures import STRIDE, family, unit
from poslab.record.reader import Run
from poslab.record.summary import is_pretrained
from poslab.report import cells
from poslab.report.formatting import count, quantity

OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon for the matrices of the blocks and AdamW for the rest"}
WINDOWS = {"within": " within one document each", "packed": " in which no document sees another"}


def paragraph(results: Results) -> Iterator[str]:
    """Yield the methods paragraph in pieces, with references marked as by `cite`.

    If arms differ in a value, all values are listed.
    """
    published = [run for run in results.finished if is_pretrained(run)]
    if len(published) == len(results.finished):
        yield _published(results)
        return
    trained = [run for run in results.finished if run not in published]
    every = partial(_every, trained)
    model, trainer = partial(_setting, trained, "model"), partial(_setting, trained, "trainer")
    blocks = {block(run.config) for run in results.finished}
    # If arms differ in their blocks, the list of their differences says so.
    but = f" except for {blocks.pop()}," if len(blocks) == 1 and "" not in blocks else ""
    of_text = results.texts[0] if results.texts else results  # all texts have the same arms
    yield (
        f"We trained decoder-only Transformers in the style of GPT-2{cite(cited('always', 'model'))}{but} "
        f"with {counted(model('layers'), 'layer')}, width {model('width')} and "
        f"{counted(model('heads'), 'head')} "
        f"({every(lambda run: quantity(run.manifest.parameters))} parameters) "
        f"{''.join(_compared(of_text))}. "
    )
    data = every(lambda run: plain(run.data_name, 60))
    vocabulary = f"a vocabulary of {every(lambda run: str(run.vocabulary))} tokens"
    text = f"text ({data}; {vocabulary})"
    if results.texts:
        text = f"one of the texts {data} ({vocabulary}; each scheme was trained on each text)"
    windows = {(run.config.get("data") or {}).get("windows") for run in results.finished}
    inside = WINDOWS.get(str(windows.pop()), "") if len(windows) == 1 else ""
    names = list(dict.fromkeys(optimizer(run) for run in results.finished))
    optimizers = listing([OPTIMIZERS.get(name, plain(name, 20)) for name in names], 3)
    sources = cite(key for name in names for key in cited("optimizer", name))
    rates = every(lambda run: rate_text(run.learning_rate) if run.learning_rate is not None else "")
    yield (
        f"The runs were trained on {every(lambda run: quantity(run.budget))} tokens of {text} in "
        f"{counted(trainer('max_steps'), 'step')} of "
        f"{trainer('batch_size')} windows of {every(lambda run: count(run.context_length))} tokens{inside}, "
        f"the training length L, with {optimizers}{sources} "
        f"(second-moment decay {trainer('beta2')}, weight decay {trainer('weight_decay')}, gradients "
        f"clipped at norm {trainer('clip_norm')}). The learning rate rose to {rates} in "
        f"{counted(trainer('warmup_steps'), 'step')} and then followed a {trainer('schedule')} schedule"
        f"{_scheme_rates(of_text)}. "
    )
    yield from _sources_of_weights(results)
    if results.tunings:
        yield "The learning rate of each arm was chosen on separate seeds and separate text. "
    if published:
        labels = dict.fromkeys(item.arm.label for item in results.arms if _is_published(item))
        yield f"We used the published weights of {listing(list(labels), 20)} without training them. "
    yield _measured(results)
    yield _tested(results)
    yield (
        f"Training ran in {every(lambda run: plain(run.manifest.precision, 20))} on "
        f"{every(lambda run: plain(run.manifest.device, 60))}. We used poslab"
        f"{cite(cited('always', 'poslab'))}."
    )


def cite(keys: Iterable[str]) -> str:
    """Return the keys of references between marks, which become LaTeX citations; "" without keys."""
    unique = list(dict.fromkeys(keys))
    return f"{MARK}{','.join(unique)}{MARK}" if unique else ""


def _published(results: Results) -> str:
    """Return the methods paragraph of a study with only published models."""
    every = partial(_every, results.finished)
    return (
        "With their published weights and without training them, we measured "
        f"{listing([item.arm.label for item in results.arms], 20)} "
        f"({every(lambda run: quantity(run.manifest.parameters))} parameters) on text of "
        f"{every(lambda run: plain(run.data_name, 60))}; L is {every(lambda run: count(run.context_length))} "
        f"tokens. {_measured(results)}Each is one trained model, so nothing is tested. We used "
        f"poslab{cite(cited('always', 'poslab'))}."
    )


def _every(runs: Sequence[Run], value: Callable[[Run], str]) -> str:
    """Return the value that the runs share, or a list of their values."""
    return cells.distinct(map(value, runs), 6)


def _setting(runs: Sequence[Run], section: str, name: str) -> str:
    """Return the value of a setting that the runs share, or a list of its values."""
    return _every(runs, lambda run: plain((run.config.get(section) or {}).get(name, "(not recorded)"), 40))


def _compared(results: Results) -> Iterator[str]:
    """Yield the arms, citing each scheme and attention where it is first named, and other differences."""
    trained = [item for item in results.arms if not _is_published(item)]
    configs = [item.arm.finished[0].config if item.arm.finished else {} for item in trained]
    attentions = {item.arm.attention for item in trained}
    several = len(attentions) > 1
    cited_before: set[str] = set()
    arms = []
    for item, config in zip(trained, configs, strict=True):
        keys = _sources("scheme", config.get("pos"))
        keys += _sources("attention", config.get("attention")) if several else []
        arms.append(f"{item.arm.label}{cite(key for key in keys if key not in cited_before)}")
        cited_before |= {*keys}
    differing = f"that differ in their positional scheme{' and attention' if several else ''}:"
    yield f"{differing if len(arms) > 1 else 'with the positional scheme'} {listing(arms, len(arms))}"
    if not several:
        sources = cite(_sources("attention", next(filter(None, configs)).get("attention")))
        yield f", {'all ' if len(arms) > 1 else ''}under {attentions.pop()} attention{sources}"
    settings = [
        key
        for key in results.differing
        if not key.startswith(("pos.", "attention."))
        and len({repr(item.arm.differing.get(key)) for item in trained}) > 1
    ]
    if settings:
        yield f". The arms also differ in {listing(settings, 12)}"


def _is_published(item: ArmFigures) -> bool:
    return any(map(is_pretrained, item.arm.finished))


def _sources(kind: str, options: Any) -> list[str]:
    names = named_in(options, "scheme" if kind == "scheme" else "kind")
    return [key for name in names for key in cited(kind, name)]


def _scheme_rates(results: Results) -> str:
    """Return the multiples of the learning rate for the parameters of schemes, if any is not 1."""
    multiples = scheme_rates(item.arm for item in results.arms)
    rates = [f"{rate:g} times for {label}" for label, rate in multiples.items()]
    words = f"; the parameters of schemes were trained at a multiple of this rate: {listing(rates, 20)}"
    return words if rates else ""


def _sources_of_weights(results: Results) -> Iterator[str]:
    """Yield, for each arm that began from a finished run, how that run had been trained."""
    for item in results.arms:
        if origins := [run.manifest.origin for run in item.arm.finished if run.manifest.origin]:
            steps = cells.distinct((str(origin.steps) for origin in origins), 6)
            lengths = cells.distinct((str(origin.context_length) for origin in origins), 6)
            yield (
                f"{item.arm.label} began with weights that had been trained for {steps} steps, most recently "
                f"in windows of {lengths} tokens. "
            )


def _measured(results: Results) -> str:
    windows = (
        f"windows slide by L/{round(1 / STRIDE)}, and their last L/{round(1 / STRIDE)} tokens are scored"
        if cells.nats_family(results) == "sliding"
        else "every token of non-overlapping windows is scored"
    )
    scored = cells.scored(results, cells.nats_family(results))
    lengths = listing([f"{k:g} L" if k != 1 else "L" for k in scored if k >= 1], 12)
    at_length = loss_at_length(results.reference, results.primary)
    past = results.primary is not None and results.tested_multiple != 1
    beside = (
        "; at L itself, arms are compared on the mean loss over non-overlapping windows"
        if past and family(at_length) != cells.loss_family(results)
        else ""
    )
    return (
        f"Losses are in {unit(results.primary)} on held-out text: {windows}, at lengths of "
        f"{lengths}{beside}. "
    )


def _tested(results: Results) -> str:
    n = results.seeds
    at_most = "up to " if any(0 < len(item.rows) < n for item in results.arms) else ""
    seeds = f"We trained {at_most}{counted(n, 'seed')} of each arm"
    if n < 2:
        return f"{seeds}, so no interval is given and nothing is tested. "
    text = "this text" if results.one_text else "these texts"
    chance = f"which cover only the variation between seeds on {text}"
    parts = results.texts or (results,)
    if documents := sorted({count for part in parts for count in part.documents}):
        draws = f"{cells.span(documents)} held-out {results.called_documents}"
        chance = f"and for differences also over {draws}"
    intervals = f"{seeds} and give 95 % Student-t intervals over them, {chance}"
    if results.primary is None:
        return f"{intervals}. "
    claims = cells.span(sorted({len(part.claims) for part in parts}))
    over = f"all {claims} claims"
    if results.texts:
        over = f"the {claims} claims of a text, and Bonferroni's over the {len(parts)} texts"
    return (
        f"{intervals}. We compare arms on the {cells.figure_words(results.primary)} by paired t tests, with "
        f"Holm's correction over {over}{cite(cited('always', 'tests'))}. "
    )
