"""Choose the learning rates of each arm before a study, by trials with separate seeds and text.

One learning rate for all schemes would favour those that it happens to suit. So every arm gets the same grid
of learning rates, and every arm with parameters in its scheme the same grid of rates for these. Trials train
as long as the study's runs, and are validated on text that the study trains on (config.part).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from poslab.config.request import Config, Request, TuneOptions
from poslab.config.schema import ConfigError
from poslab.record.reader import TUNING, Rates, load_run
from poslab.study.run.job import Job

# A trial is validated during training, and is not evaluated past L.
SHORT = {"longest": 1, "segments": 1, "sliding_windows": 1, "rescale": ["none"], "rescale_factor": "auto"}


def trials(requests: Iterable[Request]) -> list[Request]:
    """Return the trial runs for the arms of `requests`; there are none for requests without tuning.

    Raise ConfigError if `tune.scheme_factors` is set and no scheme has parameters.
    """
    requested: dict[str, Request] = {}
    requests = list(requests)
    configs = [request.config for request in requests]
    with_factors = any(config.tune.scheme_factors for config in configs)
    if with_factors and not any(config.scheme_learns for config in configs):
        raise ConfigError(
            "tune.scheme_factors is for schemes with parameters, and no scheme of this command has any: "
            "choose tune=learning_rate"
        )
    for request in requests:
        config = request.config
        evaluate = config.evaluate.model_copy(update={**SHORT, "recalibration_steps": 0})
        for rates in _grid(config):
            for seed in config.tune.seeds:
                short = config.model_copy(
                    update={
                        "part": TUNING,
                        "seed": seed,
                        "trainer": config.trainer.model_copy(update=rates._asdict()),
                        "evaluate": evaluate,
                        "tune": TuneOptions(factors=[], scheme_factors=[], seeds=[]),
                    }
                )
                trial = replace(request, config=short)
                requested.setdefault(_arm(trial) + f" {rates} {seed}", trial)
    return list(requested.values())


def tuned(
    requests: Sequence[Request], jobs: Iterable[Job]
) -> tuple[list[Request], list[tuple[Request, str]]]:
    """Return the requests with the rates that trials chose, and those without rates, with the reasons."""
    from poslab.analysis.learning_rates import choose  # imports SciPy, and few studies tune

    losses: dict[str, dict[Rates, list[float | None]]] = {}
    unfinished: set[str] = set()
    for job in jobs:
        arm = _arm(job.request)
        if not job.settled:  # its loss is missing, so the wrong rate might be chosen
            unfinished.add(arm)
            continue
        trainer = job.request.config.trainer
        rates = Rates(trainer.learning_rate, trainer.scheme_rate)
        losses.setdefault(arm, {}).setdefault(rates, []).append(_final_loss(job))
    ready, without = [], []
    for request in requests:
        if not request.config.tune.factors:
            ready.append(request)
            continue
        if _arm(request) in unfinished:
            without.append((request, "a trial of its rates is not done: run the same command again"))
            continue
        by_rates = losses.get(_arm(request), {})
        choice = choose({rates: by_rates.get(rates, [None]) for rates in _grid(request.config)})
        if choice is None:
            without.append((request, "it diverged at every rate: choose lower tune.factors"))
            continue
        trainer = request.config.trainer.model_copy(update=choice.rates._asdict())
        ready.append(replace(request, config=request.config.model_copy(update={"trainer": trainer})))
    return ready, without


def chosen_rates(requests: Iterable[Request]) -> list[str]:
    """Return lines with the rates that trials chose for each arm of `requests`, none without requests."""
    named = (replace(item, config=item.config.model_copy(update={"part": TUNING})) for item in requests)
    parts = [(item.pos, item.attention, item.distinguishing_label, item.trial) for item in named]
    arms = list(dict.fromkeys(" / ".join(filter(None, names)) for names in parts))
    return ["rates chosen by the trials:", *(f"  {arm}" for arm in arms)] if arms else []


def _grid(config: Config) -> list[Rates]:
    """Return the rates to try for an arm."""
    trainer, tune = config.trainer, config.tune
    scheme_factors = (tune.scheme_factors if config.scheme_learns else []) or [1.0]
    return [
        Rates(_product(trainer.learning_rate, factor), _product(trainer.scheme_rate, scheme_factor))
        for factor in tune.factors
        for scheme_factor in scheme_factors
    ]


def _product(base: float, factor: float) -> float:
    """Return the product without rounding errors in the last digits: 0.002 x 0.1 is 0.0002."""
    return float(f"{base * factor:.12g}")


def _arm(request: Request) -> str:
    """Return the settings that a request shares with its trials, as a key that ignores option names."""
    config = request.config.model_dump(
        mode="json",
        exclude={"seed", "part", "tune", "evaluate", "reference", "primary", "logger", "launcher"},
    )
    for rate in Rates._fields:
        del config["trainer"][rate]
    return json.dumps(config, sort_keys=True)


def _final_loss(job: Job) -> float | None:
    """Return the nats per token at the last validation of a finished run, None if it diverged."""
    run = load_run(job.directory)
    return run.validations[-1].loss if run.status == "done" else None
