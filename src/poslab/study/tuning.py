"""Choosing a learning rate for each arm before a study, by trials on seeds and text of their own.

One learning rate for all schemes would favour those that it happens to suit. Every arm has the same grid of
rates. Trials train as long as the study's runs, and are validated on text that the study trains on
(config.part).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from poslab.config.request import Request
from poslab.record.reader import load_run
from poslab.study.run.plan import Job

# A trial is validated while it trains; past L it is not measured.
SHORT = {"longest": 1, "segments": 1, "sliding_windows": 1, "rescale": ["none"], "rescale_factor": "auto"}


def trials(requests: Iterable[Request]) -> list[Request]:
    """The trial runs for the arms of `requests`; none for those that tune nothing."""
    requested: dict[str, Request] = {}
    for request in requests:
        config = request.config
        evaluate = config.evaluate.model_copy(update={**SHORT, "recalibration_steps": 0})
        for factor in config.tune.factors:
            for seed in config.tune.seeds:
                rate = _rate(config.trainer.learning_rate, factor)
                short = config.model_copy(
                    update={
                        "part": "tuning",
                        "seed": seed,
                        "trainer": config.trainer.model_copy(update={"learning_rate": rate}),
                        "evaluate": evaluate,
                        "tune": config.tune.model_copy(update={"factors": [], "seeds": []}),
                    }
                )
                trial = replace(request, config=short)
                requested.setdefault(_arm(trial) + f" {rate!r} {seed}", trial)
    return list(requested.values())


def tuned(
    requests: Sequence[Request], made: Iterable[Job]
) -> tuple[list[Request], list[tuple[Request, str]]]:
    """`requests` with the rates that the trials have chosen, and those without one, each with the reason."""
    from poslab.report.analysis.learning_rates import choose  # imports SciPy, and few studies tune

    losses: dict[str, dict[float, list[float | None]]] = {}
    unfinished: set[str] = set()
    for job in made:
        arm = _arm(job.request)
        if not job.settled:  # without its loss another rate might be chosen
            unfinished.add(arm)
            continue
        rates = losses.setdefault(arm, {})
        rates.setdefault(job.request.config.trainer.learning_rate, []).append(_final_loss(job))
    ready, without = [], []
    for request in requests:
        if not request.config.tune.factors:
            ready.append(request)
            continue
        if _arm(request) in unfinished:
            without.append((request, "a trial of its learning rate is not done: run the same command again"))
            continue
        choice = choose(_losses_of(request, losses))
        if choice is None:
            without.append((request, "it diverged at every learning rate: choose lower tune.factors"))
            continue
        trainer = request.config.trainer.model_copy(update={"learning_rate": choice.rate})
        ready.append(replace(request, config=request.config.model_copy(update={"trainer": trainer})))
    return ready, without


def _losses_of(
    request: Request, losses: Mapping[str, Mapping[float, list[float | None]]]
) -> Mapping[float, list[float | None]]:
    """The losses of all seeds, by each learning rate that the request tries."""
    config = request.config
    of_arm = losses.get(_arm(request), {})
    rates = [_rate(config.trainer.learning_rate, factor) for factor in config.tune.factors]
    return {rate: of_arm.get(rate, [None]) for rate in rates}


def _rate(base: float, factor: float) -> float:
    """The product without rounding errors in its last digits: 0.002 x 0.1 is 0.0002."""
    return float(f"{base * factor:.12g}")


def _arm(request: Request) -> str:
    """The settings that a request shares with its trials, whatever their options are called."""
    config = request.config.model_dump(
        mode="json",
        exclude={"seed", "part", "tune", "evaluate", "reference", "primary", "logger", "launcher"},
    )
    del config["trainer"]["learning_rate"]
    return json.dumps(config, sort_keys=True)


def _final_loss(job: Job) -> float | None:
    """Nats a token at the last validation of a run that is done, None of one that diverged."""
    run = load_run(job.directory)
    return run.validations[-1].loss if run.status == "done" else None
