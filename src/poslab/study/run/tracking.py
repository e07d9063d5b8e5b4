"""The loggers of a run while it trains, and the place in W&B that its record names."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poslab.loggers import OpenedRun, open_loggers
from poslab.record.seal import sealed
from poslab.record.writer import RunRecord
from poslab.study.launch.devices import peak_memory
from poslab.study.run.job import Job
from poslab.study.run.stopping import Stopped, Stopper

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

STOP_SECONDS = 1.0  # that W&B has to take the last points of a run that is asked to stop


class Tracking:
    """The opened loggers of a run."""

    def __init__(
        self,
        job: Job,
        record: RunRecord,
        rows: Sequence[Mapping[str, Any]],
        stopper: Stopper,
        given: Sequence["Logger"],
    ) -> None:
        """Open the loggers of the run's configuration, then those `given`; `rows` are earlier processes'."""
        self._record, self._stopper = record, stopper
        opened = OpenedRun(job.config, job.card, job.directory, record.manifest, tuple(rows), stopper.request)
        self._loggers = open_loggers(opened, given)
        self._note_place()

    def _note_place(self) -> None:
        """Put the place of the run in W&B into the manifest; a run keeps its first id."""
        known = self._record.manifest.wandb
        for place in filter(None, (logger.place for logger in self._loggers)):
            self._record.manifest = self._record.manifest.updated(wandb={"id": known and known.id, **place})

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row; the record names the place of the run, and a failure, when it is next written."""
        for logger in self._loggers:
            logger.log({**row, "memory_bytes": peak_memory()})
        self._note_place()

    def interrupt(self, stop: Stopped) -> None:
        """Show that the run is interrupted, which its record says; the record gets the place in W&B, too."""
        self._note_place()
        self._record.update()
        for logger in self._loggers:
            logger.finish(sealed(self._record.manifest.as_json()), stop.status, STOP_SECONDS)

    def finish(self, **end: Any) -> Stopped | None:
        """Send the rest of the run, of which `end` are the last facts; return Stopped if it came meanwhile.

        W&B gets the final manifest before it is on disk: after a crash between the two the next process
        finishes the run and sends it again. Stopped is not raised here, since the run is complete: the next
        command sends what W&B lacks.
        """
        stopped = None
        try:
            self._note_place()
            place = self._record.manifest.wandb
            sent = place.updated(complete=True) if place is not None and place.mode is not None else place
            ended = self._record.ended(**end, wandb=sent)
            for logger in self._loggers:
                logger.finish(sealed(ended.as_json()), int(ended.status != "done"))
        except Stopped as stop:
            self._stopper.disarm(stop)
            stopped = stop
        self._note_place()
        return stopped
