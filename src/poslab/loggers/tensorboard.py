"""TensorBoard: each run's curve and figures as event files in its folder.

`tensorboard --logdir runs/STUDY` shows the runs of a study together.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from poslab.config.schema import Options
from poslab.loggers import LightningLogger

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger


class TensorBoardOptions(Options):
    folder: str = Field(min_length=1, description="the folder for event files, in each run's folder")
    flush_seconds: int = Field(ge=1, description="seconds between writes to the event file")


class TensorBoard(LightningLogger):
    options_class = TensorBoardOptions
    options: TensorBoardOptions
    package = "tensorboard"
    files = ("*/events.out.tfevents.*", "*/hparams.yaml")

    def make(self, directory: Path) -> "Logger":
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(
            directory,
            name=self.options.folder,
            version="",
            default_hp_metric=False,
            flush_secs=self.options.flush_seconds,
            purge_step=0,  # a resumed run logs its curve again: TensorBoard drops the earlier points
        )
