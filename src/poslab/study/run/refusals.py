"""Record the runs that cannot work, so that the report of their study names them."""

from pathlib import Path

from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.record.manifest import remove_record
from poslab.record.schema import FORMAT
from poslab.record.writer import RunRecord
from poslab.study.run.identity import Code, run_identity, run_name
from poslab.study.run.plan import recorded_settings, resolve


def record_refusal(request: Request, runs: Path, error: ConfigError, local: bool = True) -> Path:
    """Record a run that cannot work, because of its parts or its size, and return its directory."""
    record = RunRecord(_refusal_directory(request, runs))
    record.update(
        format=FORMAT,
        study=request.config.study,
        run=record.directory.name,
        identity=record.directory.name.rpartition("-")[2],
        status="failed",
        reason=str(error),
        pos=request.pos,
        attention=request.attention,
        seed=request.config.seed,
        # The same form as in the records of other runs.
        config=recorded_settings(resolve(request.config, local), request.start),
    )
    return record.directory


def forget_refusal(request: Request, runs: Path) -> None:
    """Remove the record of an earlier refusal of a request that can work now."""
    remove_record(_refusal_directory(request, runs))


def _refusal_directory(request: Request, runs: Path) -> Path:
    identity = run_identity(request.config, Code("", "", ""), "", request.start)
    name = run_name((request.pos, request.attention), request.config.seed, identity)
    return runs / request.config.study / name
