"""Measure how long planning takes: python benchmarks/planning.py [runs=10000] [finished=500]

The command `train.py -m seed=range(N)` is timed until the first run would begin. Then a command with finished
runs only (synthetic records, with weights of the default model's size) is timed until they are recognised.
Each runs in a separate process and folder, and imports are included. Wall-clock and processor seconds of this
machine are printed.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
TINY = ("data=copy", "data.tokens=60000", "trainer.max_steps=4", "trainer.warmup_steps=1", "logger=local")
WEIGHTS = 3_500_000  # bytes of a checkpoint.pt


def plan_alone(arguments: Sequence[str]) -> None:
    """Run the command with these arguments in this process, and exit when its runs are planned."""
    from poslab.study import execute

    finish = execute._finish

    def stop_before_runs(jobs, *rest):  # type: ignore[no-untyped-def]
        if arguments[0] == "record":
            for job in jobs:
                _make_up_record(job)
        elif arguments[0] == "plan":
            print(f"{len(jobs)} planned", file=sys.stderr)
        else:
            finish(jobs, *rest)
        sys.stderr.flush()
        os._exit(0)

    execute._finish = stop_before_runs
    sys.argv = ["train.py", *arguments[1:]]
    sys.path.insert(0, str(ROOT))
    import runpy

    runpy.run_path(str(ROOT / "train.py"), run_name="__main__")


def _make_up_record(job) -> None:  # type: ignore[no-untyped-def]
    """Write the record of a finished run, as far as planning reads it."""
    from poslab.record.schema import FINAL, FORMAT
    from poslab.record.writer import RunRecord

    record = RunRecord(job.directory)
    weights = hashlib.sha256(job.identity.encode()).digest() * (WEIGHTS // 32)
    job.directory.mkdir(parents=True)
    (job.directory / FINAL).write_bytes(weights)
    files = {FINAL: hashlib.sha256(weights).hexdigest()}
    record.update(
        format=FORMAT,
        status="done",
        study=job.config.study,
        run=job.directory.name,
        identity=job.identity,
        pos=job.request.pos,
        attention=job.request.attention,
        seed=job.config.seed,
        config=job.config.result_settings(),
        code_evaluation=job.code.evaluation,
        files=files,
    )


def timed(action: str, runs: int, place: Path) -> str:
    """Return the seconds of a command with `runs` runs, as text."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, __file__, action, "-m", f"seed=range({runs})", *TINY],
        cwd=place,
        env={**os.environ, "POSLAB_CACHE": str(place / "cache"), "HOME": str(place)},
        check=True,
    )
    wall, after = time.perf_counter() - begun, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{wall:.1f} s, {processor:.1f} processor seconds"


def main(arguments: Sequence[str]) -> None:
    options = {"runs": "10000", "finished": "500"} | dict(text.partition("=")[::2] for text in arguments)
    if options.keys() != {"runs", "finished"}:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        planned = timed("plan", int(options["runs"]), place)
        print(f"{options['runs']} runs planned: {planned}")
        timed("record", int(options["finished"]), place)
        recognised = timed("find", int(options["finished"]), place)
        print(f"{options['finished']} finished runs recognised: {recognised}")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("plan", "record", "find"):
        plan_alone(sys.argv[1:])
    else:
        main(sys.argv[1:])
