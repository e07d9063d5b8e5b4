"""Compose a configuration and make its run, or with -m its study. `python train.py --help` says how."""

import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from poslab.compose import command_line, request_from
from poslab.config import ConfigError


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def single(composed: DictConfig) -> None:
    try:
        hydra_config = HydraConfig.get()
        request = request_from(composed, hydra_config.runtime.choices, Path(__file__).parent / "conf")
        # PyTorch is imported only now: --help and a wrong setting answer at once.
        from poslab.study import single_run

        command = command_line(hydra_config.overrides.task, multirun=False)
        status = single_run(request, Path("runs"), Path("reports"), command)
    except ConfigError as error:  # caught here, since Hydra would print the command's overrides first
        status = refuse(error)
    sys.exit(status)


def refuse(error: Exception) -> int:
    """Say in one line what is wrong with the command; the exit status."""
    text = " ".join(str(error).split())
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        choice = str(error.missing_cfg_file).replace("/", "=")
        text = f"{choice} does not exist; there are {', '.join(error.options)}"
    elif text.startswith("Could not override"):  # what follows would tell how to add a key that nothing reads
        text = f"{text.split(' To append')[0]} `python train.py --cfg job` prints every setting."
    print(f"poslab: {text}", file=sys.stderr)
    return 2


def main() -> None:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra's errors arrive here and become one line
    try:
        single()
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        sys.exit(refuse(error))
    except OSError as error:  # a full disk, a folder that cannot be written
        print(f"poslab: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("poslab: stopped; finished runs are kept, and the same command makes the rest", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
