"""The settings of one run, composed by Hydra in a program of the caller's."""

import re
from threading import Lock

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from poslab.config.installation import conf_folder
from poslab.config.mistakes import explained, read_arguments
from poslab.config.option_files import installed_conf
from poslab.config.overrides import check_texts
from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.config.sweep import Composer
from poslab.study.run.start import request_of

HYDRA = Lock()  # a process has one Hydra, for all of its threads


def compose(*overrides: str) -> Request:
    """Compose the settings of one run from arguments as for `train.py`: `compose("pos=alibi", "seed=1")`.

    Raise ConfigError, one line, where an argument is wrong.
    """
    check_texts(overrides)
    conf = installed_conf()
    read_arguments(overrides, conf)
    if whole := [text for text in overrides if re.match(r"[+~]*(hydra\b|sweep=)|-", text)]:
        raise ConfigError(f"{whole[0]}: compose takes the settings of one run; train.py takes all others")
    with HYDRA:
        of_caller = GlobalHydra.instance().hydra  # which an application of the caller's may be using
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(conf_folder().resolve()), version_base="1.3"):
                composer = Composer(lambda given: hydra.compose("config", given, return_hydra_config=True))
                composed = composer.composed(overrides)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(explained(error, conf)) from None
        finally:
            GlobalHydra.instance().hydra = of_caller
    return request_of(composed.settings, composed.choices, overrides, composed.conf)
