"""TensorBoard: each run's curve and figures as event files in its folder.

`tensorboard --logdir runs/STUDY` shows the runs of a study together.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from poslab.loggers import LightningLogger

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger


class TensorBoard(LightningLogger):
    package = "tensorboard"
    files = ("tensorboard/events.out.tfevents.*", "tensorboard/hparams.yaml")

    def make(self, directory: Path) -> "Logger":
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(
            directory,
            name="tensorboard",
            version="",
            default_hp_metric=False,
            flush_secs=10,
            purge_step=0,  # a resumed run logs its curve again: TensorBoard drops the earlier points
        )
