"""Hydra's own sweeper for `-m`, without the file multirun.yaml that it writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import OmegaConf


@dataclass
class PoslabSweeperConfig(BasicSweeperConf):
    _target_: str = "hydra_plugins.poslab_launcher.sweeper.PoslabSweeper"


ConfigStore.instance().store(
    group="hydra/sweeper", name="poslab", node=PoslabSweeperConfig, provider="poslab"
)


class PoslabSweeper(BasicSweeper):
    def sweep(self, arguments: list[str]) -> Any:
        """Let Hydra write multirun.yaml into a folder of its own, not among the user's files."""
        assert self.config is not None
        with TemporaryDirectory() as folder:
            OmegaConf.update(self.config, "hydra.sweep.dir", folder)
            return super().sweep(arguments)

    @staticmethod
    def split_arguments(overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """Return the overrides of each run. Raise HydraException for a function that gives no values."""
        for override in overrides:
            values = override.value()
            if isinstance(values, RangeSweep) and not values.step:
                raise HydraException(f"{override.input_line}: a range needs steps other than 0")
            if isinstance(values, IntervalSweep):
                line, key = override.input_line, override.key_or_group
                raise HydraException(f"{line}: runs need single values: write them out, {key}=A,B,C")
        return BasicSweeper.split_arguments(overrides, max_batch_size)

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Remove multirun.yaml: Hydra calls this between the writing of that file and the launch.

        The file repeats the command with the variables that it sets or copies (hydra.job.env_set, env_copy),
        which may be secrets, and nothing reads it. Hydra would compose every run here and forget it, for
        launchers that compose them elsewhere; poslab's composes all of them before the first one starts.
        """
        assert self.config is not None
        (Path(self.config.hydra.sweep.dir) / "multirun.yaml").unlink(missing_ok=True)
