"""Hydra's side of `-m`: give the runs of a study to poslab's own launchers, then write its report.

Hydra's own launchers lose runs when a process dies and write no report after a failure. This one continues
after a failed run, and ends the command with status 1.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, env_override
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class PoslabLauncherConfig:
    _target_: str = "hydra_plugins.poslab_launcher.launcher.PoslabLauncher"


ConfigStore.instance().store(
    group="hydra/launcher", name="poslab", node=PoslabLauncherConfig, provider="poslab"
)


class PoslabLauncher(Launcher):
    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.hydra_context = hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        # Imported here, since Hydra imports every plugin at start and PyTorch is slow to import.
        from poslab.config.compose import command_line, with_distinguishing_labels
        from poslab.config.schema import ConfigError
        from poslab.config.sweep import Composer
        from poslab.config.text import override_text
        from poslab.study.execute import run_study
        from poslab.study.run.start import request_of

        swept = [item for item in self.config.hydra.overrides.task if re.match(r"(sweep|launcher)=.*,", item)]
        if swept:  # Hydra would ignore both silently
            raise ConfigError(f"{swept[0]}: a sweep or a launcher cannot be swept; give one command for each")
        if not job_overrides:
            raise ConfigError("the command has no run: a range or a glob in it has no value")
        requests = []
        load = self.hydra_context.config_loader.load_sweep_config
        composer = Composer(lambda overrides: load(self.config, overrides))
        for overrides in job_overrides:
            composed = composer.composed(overrides)
            try:
                settings, choices, conf = composed.settings, composed.choices, composed.conf
                requests.append(request_of(settings, choices, overrides, conf))
            except ConfigError as error:
                # The run is named by the overrides that not all runs have.
                distinct = [text for text in overrides if any(text not in job for job in job_overrides)]
                name = " ".join(map(override_text, distinct))
                raise ConfigError(f"{name}: {error}" if name else str(error)) from None
        command = command_line(self.config.hydra.overrides.task, multirun=True)
        with env_override(self.config.hydra.job.env_set):  # as Hydra does for a single run
            status = run_study(with_distinguishing_labels(requests), command)
        if status:
            sys.exit(status)
        return []
