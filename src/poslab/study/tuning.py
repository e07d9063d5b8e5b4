"""A learning rate for each arm, chosen before its study: same grid, seeds and text of their own.

The learning rate is a nuisance: one rate for all schemes favours those that it happens to suit. Trials train
as long as the study's runs do and are validated on text that the study trains on (config.part).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from poslab.config.request import Request
from poslab.record.reader import load_run
from poslab.report.analysis.learning_rates import choose
from poslab.study.run.plan import Job

# A trial is validated while it trains; past L it is not measured.
SHORT = {"longest": 1, "segments": 1, "sliding_windows": 1, "rescale": ["none"], "rescale_factor": "auto"}


def trials(requests: Iterable[Request]) -> list[Request]:
    """The runs that choose the rates of the arms of `requests`; none for those that tune nothing."""
    found: dict[str, Request] = {}
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
                found.setdefault(_arm(trial) + f" {rate!r} {seed}", trial)
    return list(found.values())


def tuned(
    requests: Sequence[Request], made: Iterable[Job]
) -> tuple[list[Request], list[tuple[Request, str]]]:
    """`requests` with the rates that the trials chose, and those that have none yet, each with a reason."""
    losses: dict[str, dict[float, list[float | None]]] = {}
    unfinished: set[str] = set()
    for job in made:
        arm = _arm(job.request)
        if not job.settled:  # a lost process says nothing of a rate: without it another one might be chosen
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
            without.append((request, "a trial of its learning rate is not done: give the command again"))
            continue
        choice = choose(_of(request, losses))
        if choice is None:
            without.append((request, "it diverged at every learning rate: choose lower tune.factors"))
            continue
        trainer = request.config.trainer.model_copy(update={"learning_rate": choice.rate})
        ready.append(replace(request, config=request.config.model_copy(update={"trainer": trainer})))
    return ready, without


def _of(
    request: Request, losses: Mapping[str, Mapping[float, list[float | None]]]
) -> Mapping[float, list[float | None]]:
    """The losses of the rates that this request asks for, all of its seeds."""
    config = request.config
    mine = losses.get(_arm(request), {})
    asked = [_rate(config.trainer.learning_rate, factor) for factor in config.tune.factors]
    return {rate: mine.get(rate, [None]) for rate in asked}


def _rate(base: float, factor: float) -> float:
    """Without the last bits of the product: 0.002 x 0.1 is 0.0002."""
    return float(f"{base * factor:.12g}")


def _arm(request: Request) -> str:
    """What a request and its trials have in common, by whatever name it was asked for."""
    config = request.config.model_dump(
        mode="json", exclude={"seed", "part", "tune", "evaluate", "reference", "logger", "launcher"}
    )
    del config["trainer"]["learning_rate"]
    return json.dumps(config, sort_keys=True)


def _final_loss(job: Job) -> float | None:
    """Nats a token at the last validation of a run that is done, None of one that diverged."""
    run = load_run(job.directory)
    return run.validations[-1].loss if run.status == "done" else None
