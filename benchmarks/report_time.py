"""Measure seconds and peak memory of one report over many runs: python benchmarks/report_time.py runs=1000

The records are synthetic, with the size of real ones: 100 validations, 64 segments at five lengths in three
protocols, the longest window of 1,024 positions. They are written to a temporary directory and removed.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from poslab.record.schema import EXTRAPOLATION, FORMAT, METRICS, POSITION
from poslab.record.writer import RunRecord

L = 64
MULTIPLES = (1, 2, 4, 8, 16)
SEGMENTS = 64
VALIDATIONS = 100
STEPS, BATCH = 400, 32
SEEDS = 25
MEASURED = "import resource, sys; from poslab.commands.report import main; code = main(sys.argv[1:]); " + (
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Measured:
    """The cost and the size of one report."""

    seconds: float  # processor time
    peak: int  # resident memory in bytes
    page: int  # bytes of index.html
    report: int  # bytes of all its files


def write_study(runs: Path, arms: int, seeds: int, study: str = "many") -> None:
    """Write the records of `arms` arms with `seeds` seeds each."""
    for arm in range(arms):
        for seed in range(seeds):
            _write_run(runs / study, arm, seed)


def _write_run(study: Path, arm: int, seed: int) -> None:
    pos = f"scheme-{arm:02d}"
    record = RunRecord(study / f"{pos}-softmax-seed{seed}-{arm * 1000 + seed:012x}")
    chance = Random(1000 * arm + seed)
    level = 2 + 0.01 * arm + chance.gauss(0, 0.01)
    record.write_table(METRICS, _metrics(level, chance))
    record.write_table(EXTRAPOLATION, _lengths(level, chance))
    record.write_table(POSITION, _positions(level, chance))
    record.update(
        format=FORMAT,
        study=study.name,
        run=record.directory.name,
        pos=pos,
        attention="softmax",
        seed=seed,
        config=_config(pos, seed),
        code="c0dec0dec0dec0de",
        code_parts="beefbeefbeefbeef",
        data={"name": "tiny_shakespeare", "fingerprint": "f00d" * 16, "vocabulary": 256},
        versions={"python": "3.12.3", "torch": "2.13.0", "numpy": "2.5.5"},
        device="NVIDIA H200",
        kernel="flex_attention",
        precision="bfloat16",
        parameters=802_816,
        tokens=STEPS * BATCH * L,
        flops=6.1e12,
        seconds=61.5 + seed,
        seconds_validation=4.5,
        seconds_evaluation=12.25,
        started="2026-01-01T00:00:00+00:00",
        finished=f"2026-01-01T{seed % 24:02d}:01:00+00:00",
        max_length=None,
        wandb={"mode": "online", "url": f"https://wandb.ai/lab/poslab/runs/{arm * 1000 + seed:x}"},
    )
    record.update(status="done", files=record.files)


def _config(pos: str, seed: int) -> dict[str, Any]:
    return {
        "context_length": L,
        "seed": seed,
        "pos": {"scheme": pos},
        "attention": {"kind": "softmax"},
        "data": {"source": "tiny_shakespeare", "tokenizer": "bytes"},
        "model": {"layers": 4, "width": 128, "heads": 4},
        "trainer": {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": 0.002, "schedule": "cosine"},
        "evaluate": {"validations": VALIDATIONS, "longest": 16, "segments": SEGMENTS},
    }


def _metrics(level: float, chance: Random) -> Iterator[dict[str, Any]]:
    for i in range(1, VALIDATIONS + 1):
        loss = level + 3 / i + chance.gauss(0, 0.01)
        yield {
            "step": STEPS * i // VALIDATIONS,
            "tokens": STEPS * BATCH * L * i // VALIDATIONS,
            "seconds": 0.615 * i,
            "train_nll": 8192 * loss,
            "train_tokens": 8192,
            "validation_nll": 4096 * loss,
            "validation_tokens": 4096,
            "validation_bytes": 4096,
            "learning_rate": 0.002,
            "gradient_norm": 0.731,
            "tokens_per_second": 66_312.5,
        }


def _lengths(level: float, chance: Random) -> Iterator[dict[str, Any]]:
    for protocol, extra in (("non_overlapping", 0.1), ("sliding", 0.0), ("matched", 0.05)):
        for k in MULTIPLES:
            for segment in range(SEGMENTS):
                nll = 1024 * (level + extra + 0.02 * math.log(k) + chance.gauss(0, 0.1))
                place = {"protocol": protocol, "multiple": k, "length": k * L, "segment": segment}
                yield place | {"nll": nll, "tokens": 1024, "bytes": 1987}


def _positions(level: float, chance: Random) -> Iterator[dict[str, Any]]:
    for position in range(16 * L):
        nll = 64 * (level + 1 / (position + 1) + chance.gauss(0, 0.02))
        yield {"position": position, "nll": nll, "tokens": 64, "bytes": 130}


def measure(home: Path, study: str = "many") -> Measured:
    """Measure one report in a separate process, from the records under `home`/runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, f"study={study}", f"runs={home / 'runs'}", f"reports={home}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path.stat().st_size for path in (home / study).rglob("*") if path.is_file()]
    return Measured(
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        1024 * int(done.stderr.split()[-1]),
        (home / study / "index.html").stat().st_size,
        sum(files),
    )


def main(arguments: list[str]) -> int:
    runs = 1000
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key != "runs" or not value.isdecimal() or int(value) < SEEDS:
            print(
                f"python benchmarks/report_time.py runs=1000 ({SEEDS} or more), not {argument}",
                file=sys.stderr,
            )
            return 2
        runs = int(value)
    arms = runs // SEEDS
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_study(home / "runs", arms, SEEDS)
        measured = measure(home)
    printed = {
        "runs": arms * SEEDS,
        "arms": arms,
        "processor seconds": round(measured.seconds, 1),
        "peak memory, MB": round(measured.peak / 1e6),
        "page, kB": round(measured.page / 1e3),
        "report, kB": round(measured.report / 1e3),
    }
    print(json.dumps(printed, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
