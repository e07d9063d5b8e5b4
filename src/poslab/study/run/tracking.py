"""The loggers of a run while it trains, and the run's place in W&B for its record."""

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

STOP_SECONDS = 1.0  # the time that loggers have to send the last points of a run that is stopped


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
        """Open the configured loggers, then the `given` ones. `rows` are those of earlier processes."""
        self._record, self._stopper = record, stopper
        opened = OpenedRun(job.config, job.card, job.directory, record.manifest, tuple(rows), stopper.request)
        self._loggers = open_loggers(opened, given)
        self._note_place()

    def _note_place(self) -> None:
        """Put the run's place in W&B into the manifest. A new place without an id gets the earlier id."""
        known = self._record.manifest.wandb
        for place in filter(None, (logger.place for logger in self._loggers)):
            self._record.manifest = self._record.manifest.updated(wandb={"id": known and known.id, **place})

    def log(self, row: Mapping[str, Any]) -> None:
        """Send a row to the loggers. The next write of the record includes the run's place, or a failure."""
        for logger in self._loggers:
            logger.log({**row, "memory_bytes": peak_memory()})
        self._note_place()

    def interrupt(self, stop: Stopped) -> None:
        """Write the place in W&B to the record, and finish the loggers of a run that was interrupted."""
        self._note_place()
        self._record.update()
        for logger in self._loggers:
            logger.finish(sealed(self._record.manifest.as_json()), stop.status, STOP_SECONDS)

    def finish(self, **end: Any) -> Stopped | None:
        """Send the rest of the run, with its last facts `end`; return Stopped if a signal came during that.

        W&B gets the final manifest before it is on disk: after a crash between the two, the next process
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
