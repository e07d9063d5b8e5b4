"""What a record holds of a run from its start, before anything is trained."""

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from poslab.record.schema import FORMAT, RunOrigin
from poslab.study.run.identity import describe_versions
from poslab.study.run.plan import Job, recorded_settings
from poslab.study.run.provenance import hardware, source_state


def first_facts(job: Job) -> dict[str, Any]:
    """What a record holds from its start: the request, the code and data, and the machine."""
    config = job.config
    cuda = config.trainer.accelerator == "cuda"
    return {
        "format": FORMAT,
        "study": config.study,
        "run": job.directory.name,
        "identity": job.identity,
        "status": "running",
        "reason": None,
        "pos": job.request.pos,
        "attention": job.request.attention,
        "seed": config.seed,
        "config": recorded_settings(config, job.request.start),
        "origin": origin_of(job),
        "code": job.code.shared,
        "code_parts": job.code.parts,
        "code_evaluation": job.code.evaluation,
        "data": job.corpus.describe(),
        "versions": describe_versions(),
        "source": source_state(),
        "hardware": hardware(cuda),
        "device": torch.cuda.get_device_name() if cuda else f"cpu ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "started": now(),
        "finished": None,
    }


def origin_of(job: Job) -> dict[str, Any] | None:
    """What the run goes on from, without the place where that lies."""
    if job.request.start is None:
        return None
    facts = asdict(job.request.start)
    return {name: value for name, value in facts.items() if name in RunOrigin.model_fields}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
