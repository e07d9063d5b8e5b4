"""Compose the settings of one run with Hydra, inside the caller's program."""

import re
from os import PathLike
from pathlib import Path
from threading import Lock

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from poslab.config.installation import conf_folder
from poslab.config.mistakes import explained, read_arguments
from poslab.config.option_files import Conf, installed_conf
from poslab.config.overrides import check_texts
from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.config.sweep import Composer
from poslab.study.run.start import request_of

HYDRA = Lock()  # a process has one Hydra, for all of its threads


def compose(*overrides: str, config_dir: str | PathLike[str] | None = None) -> Request:
    """Compose the settings of one run from `train.py` arguments: `compose("pos=alibi", "seed=1")`.

    `config_dir` is a folder with your own option files, such as `config_dir`/pos/NAME.yaml. Raise a one-line
    ConfigError if an argument is wrong.
    """
    check_texts(overrides)
    added = [] if config_dir is None else [Path(config_dir).resolve()]
    if added and not added[0].is_dir():
        raise ConfigError(f"config_dir={config_dir} is not a folder: name one with option files")
    conf = Conf((*installed_conf().folders, *added))
    quoted = [str(folder).replace("'", r"\'") for folder in added]
    search = [f"hydra.searchpath=['file://{folder}']" for folder in quoted]
    read_arguments(overrides, conf)
    if refused := [text for text in overrides if re.match(r"[+~]*(hydra\b|sweep=)|-", text)]:
        raise ConfigError(
            f"{refused[0]}: compose takes the settings of one run and config_dir; use train.py for all others"
        )
    with HYDRA:
        hydra_of_caller = GlobalHydra.instance().hydra  # the caller's application may be using it
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(conf_folder().resolve()), version_base="1.3"):
                composer = Composer(
                    lambda texts: hydra.compose("config", [*search, *texts], return_hydra_config=True)
                )
                composed = composer.composed(overrides)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(explained(error, conf)) from None
        finally:
            GlobalHydra.instance().hydra = hydra_of_caller
    return request_of(composed.settings, composed.choices, overrides, composed.conf)
