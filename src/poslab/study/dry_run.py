"""List the runs that a command would start and their cost, without starting any: `plan=true`."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poslab.config.request import Request
from poslab.config.schema import SHARING, ConfigError, ProbeOptions
from poslab.config.text import counted
from poslab.record.facts import Manifest
from poslab.record.locks import is_taken, run_lock
from poslab.study.cost import Timed, cost_of, non_matmul_per_token, on_gpu, processor_of, rate_for, timed_runs
from poslab.study.launch.contract import Launcher, LauncherOptions, Places, Task
from poslab.study.launch.devices import gpu_memory, torch_threads
from poslab.study.launch.machine import Memory, machine_memory
from poslab.study.plan_table import Planned, show_plan
from poslab.study.planning import launcher_of, plan_requests
from poslab.study.pool import Member
from poslab.study.reuse import one_of_each_training, would_take_over
from poslab.study.run.budget import estimate
from poslab.study.run.facts import hardware
from poslab.study.run.job import Job
from poslab.study.run.stopping import Stopped, Stopper
from poslab.study.schedule import Machine, schedule
from poslab.study.study_options import study_options
from poslab.study.tuning import trials, tuned
from poslab.training.observer import Observer

MEASURE = "measure"  # the value of `plan` that times a few steps first
IMAGINED = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})GB")  # imagined GPUs: number and memory of each
TRIAL_STEPS = 4
UNTUNED = "after trials"  # the state of a run before trials have chosen its learning rate


def print_plan(requests: Sequence[Request], command: str) -> int:
    """Print the runs of a command with their cost and devices; return 1 if one cannot work, else 0.

    Raise ConfigError if a setting is wrong or no run can work.
    """
    plan = requests[0].config.plan
    if any(request.config.plan != plan for request in requests):
        raise ConfigError("plan: a command has only one plan, it cannot be swept")
    imagined = IMAGINED.fullmatch(plan) if isinstance(plan, str) else None
    if isinstance(plan, str) and plan != MEASURE and imagined is None:
        raise ConfigError(
            f"plan={plan[:60]} must be true, false, measure, or GPUs and their memory, such as 8x80GB"
        )
    kind, options = launcher_of(requests)
    settings = study_options(requests, command)
    runs = settings.runs
    local = kind.on_this_machine(options) and imagined is None
    gpu = None if imagined is None else Memory(int(imagined[2]) * 10**9, f"a GPU of plan={plan} has")
    jobs, refused = plan_requests(requests, runs, local, gpu)
    settings.check_primaries(jobs)
    task = max((Member.of(job).task for job in jobs), key=lambda task: task.devices * task.nodes)
    if imagined and gpu:
        machine = _imagined(int(imagined[1]), gpu, options, task)
    else:
        machine = _machine(jobs, kind, options, task)
    planned = _stages(jobs, runs, local)
    stages = [_planned(stage, state, machine, kind.detached) for stage, state in planned]
    rows = [row for stage in stages for row in stage]
    recorded = [_trial(rows, machine)] if plan == MEASURE else timed_runs(runs, _like(machine))
    _place(stages, machine, recorded)
    show_plan(rows, machine, _basis(plan, recorded))
    for request, error in refused:
        print(f"cannot run: {request.title}: {error}")
    return int(bool(refused))


def _imagined(count: int, gpu: Memory, options: LauncherOptions, task: Task) -> Machine:
    """Return a machine with `count` GPUs of this memory. Raise ConfigError if the runs cannot use them."""
    setting = f"plan={count}x{gpu.bytes // 10**9}GB"
    if not task.cuda:
        raise ConfigError(f"{setting} is for runs on GPUs: leave trainer.accelerator=cpu out")
    of_a_run = task.devices * task.nodes
    if of_a_run > count:
        raise ConfigError(
            f"a run takes {of_a_run} GPUs (trainer.devices x trainer.nodes), and {setting} has {count}: "
            "plan for more GPUs, or choose smaller values"
        )
    names = tuple(f"GPU {number}" for number in range(count))
    places = Places(names, of_a_run, getattr(options, "runs_per_gpu", 1))
    name = f"{counted(count, 'imagined GPU')} of {gpu.bytes // 10**9} GB"
    return Machine(name, False, True, places, (gpu.bytes,) * count)


def _machine(jobs: Sequence[Job], kind: type[Launcher], options: LauncherOptions, task: Task) -> Machine:
    """Return the machine on which the jobs run; `task` is the one that takes the most devices."""
    known = kind.places(options, len(jobs), task)
    local = kind.on_this_machine(options)
    if known is None:
        return Machine(f"the cluster of launcher={jobs[0].config.launcher['name']}", local, task.cuda, None)
    if known.of_a_run > len(known.names):
        raise ConfigError(f"a run takes {known.of_a_run} devices, but {len(known.names)} exist: choose fewer")
    if task.cuda:
        memory = tuple(gpu.bytes for gpu in gpu_memory())
        return Machine(f"this machine's {len(known.names)} GPUs", local, True, known, memory)
    name = f"this machine's {len(known.names)} cores, {known.of_a_run} per run"
    return Machine(name, local, False, known, (machine_memory().bytes,))


def _stages(jobs: Sequence[Job], runs: Path, local: bool) -> list[tuple[list[Job], str | None]]:
    """Return the stages of a command, each with the state of its runs: first trials, then the study's runs.

    The state is None, except for the study's runs before trials have chosen their learning rates.
    """
    trial_requests = trials(job.request for job in jobs)
    if not trial_requests:
        return [(list(jobs), None)]
    trial_jobs, _ = plan_requests(trial_requests, runs, local)
    if not all(job.settled for job in trial_jobs):
        return [(trial_jobs, None), (list(jobs), UNTUNED)]
    ready, _ = tuned([job.request for job in jobs], trial_jobs)
    chosen = plan_requests(ready, runs, local)[0] if ready else []
    return [(trial_jobs, None), (chosen, None)]


def _planned(jobs: Sequence[Job], state: str | None, machine: Machine, detached: bool) -> list[Planned]:
    """Return a row for each job; its time, place and wave are set later.

    A `detached` launcher gets all jobs at once, so no run can use the weights of another one.
    """
    later = set[Path]() if detached else {job.directory for job in one_of_each_training(jobs)[1]}
    states = {directory: "evaluates" for directory in later if not directory.exists()}
    copied, trained = would_take_over(jobs)
    cores = None if machine.cuda or machine.places is None else machine.places.of_a_run
    states |= dict.fromkeys(trained, "evaluates") | dict.fromkeys(copied, "copied")
    return [
        Planned(
            seconds=0.0,
            memory=estimate(job.size),
            devices=cores or job.config.trainer.devices * job.config.trainer.nodes,
            job=job,
            state=state or _state(job, states),
            cost=cost_of(job.config.result_settings(), job.corpus.vocabulary),
            later=job.directory in later,
        )
        for job in jobs
    ]


def _state(job: Job, states: Mapping[Path, str]) -> str:
    """Return what the command would do with a run: its entry in `states`, else its state by its record."""
    if job.directory in states:
        return states[job.directory]
    run_status = job.run_status
    if run_status.settled:
        return "finished"
    if run_status.outdated and not run_status.damage:
        return "evaluates"
    if run_status.status in ("running", "interrupted"):
        return "running" if is_taken(run_lock(job.directory)) else "resumes"
    return "starts"


def _place(stages: Sequence[Sequence[Planned]], machine: Machine, recorded: Sequence[Timed]) -> None:
    """Set the time, the devices and the wave of each run that the command starts.

    If no time is known, the order of the runs and their waves follow from operations instead of seconds.
    """
    before: list[Planned] = []
    for stage, later in itertools.product(stages, (False, True)):
        starting = [run for run in stage if run.works and run.later is later]
        for run in starting:
            rate = rate_for(run.job.config.result_settings(), run.cost, recorded) or 1.0
            run.seconds = run.flops / rate / run.devices
        if machine.places is not None:
            schedule(starting, machine.places, machine.memory, before)
        before += starting


def _like(machine: Machine) -> Callable[[Manifest], bool]:
    """Return a function that says whether a run's record is from a machine like the planned one.

    For this machine, its processor or GPU must be the same model; for others, both use GPUs or neither does.
    """
    if not machine.local:
        return lambda manifest: on_gpu(manifest) == machine.cuda
    if machine.cuda:
        import torch

        name = torch.cuda.get_device_name()
        return lambda manifest: manifest.device == name
    processor = hardware().processor
    return lambda manifest: not on_gpu(manifest) and processor_of(manifest) == processor


def _trial(planned: Sequence[Planned], machine: Machine) -> Timed:
    """Train the smallest run for four steps without a record, and return the rate after the first step."""
    if not machine.local:
        raise ConfigError("plan=measure times this machine, but the runs are for another: choose plan=true")
    from poslab.model.gpt import build
    from poslab.training.loop import train

    smallest = min(planned, key=lambda item: item.cost.flops)
    config, corpus = smallest.job.config, smallest.job.corpus
    steps = {"max_steps": TRIAL_STEPS, "warmup_steps": 1, "compile": False, **SHARING}
    validated = {"validations": TRIAL_STEPS, "validation_windows": 1}
    short = config.model_copy(
        update={
            "trainer": config.trainer.model_copy(update=steps),
            "evaluate": config.evaluate.model_copy(update=validated),
            "probe": ProbeOptions(tasks=[]),
            "callbacks": {},
        }
    )
    threads = None if machine.places is None or machine.cuda else machine.places.of_a_run
    timed = _Rows()
    try:
        with torch_threads(threads), Stopper().installed():
            train(build(short, corpus.vocabulary), short, corpus, timed)
    except Stopped as stop:
        raise SystemExit(stop.status) from None
    first, *_, last = timed.rows
    seconds, tokens = last["seconds"] - first["seconds"], last["tokens"] - first["tokens"]
    settings, per_token = short.result_settings(), smallest.cost.per_token
    rate = (per_token + non_matmul_per_token(settings)) * tokens / seconds / (threads or 1)
    return Timed(settings, per_token, rate, machine.name)


class _Rows(Observer):
    """Collects the rows that training reports."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def row(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)


def _basis(plan: bool | str, recorded: Sequence[Timed]) -> str:
    """Return the source of the times, as the end of a sentence; empty if there are none."""
    if not recorded:
        return ""
    if plan == MEASURE:
        return f"estimated from {TRIAL_STEPS} steps of the smallest run, timed now"
    devices = ", ".join(dict.fromkeys(item.device for item in recorded))
    return f"estimated from {counted(len(recorded), 'finished run')} on {devices}"
