"""Make the run of a configuration, or with -m the runs of a study; or show the state of a study.

`python train.py --help` has the settings and examples.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End at once: there is nothing yet that could be lost."""
    os.write(2, b"poslab: stopped before anything was trained\n")
    os._exit(128 + number)


if __name__ == "__main__":  # before the imports, which take seconds
    signal.signal(signal.SIGINT, end_at_once)
    signal.signal(signal.SIGTERM, end_at_once)

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from poslab.config.arguments import FAILED, refuse
from poslab.config.compose import command_line, request_from
from poslab.config.schema import ConfigError
from poslab.config.text import error_text, one_line
from poslab.record.locks import TakenError
from poslab.study.status import status


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def single(composed: DictConfig) -> None:
    try:
        hydra_config = HydraConfig.get()
        request = request_from(composed, hydra_config.runtime.choices, Path(__file__).parent / "conf")
        # PyTorch is imported only now, so that --help and a wrong setting are answered at once.
        from poslab.study.conduct import run_study

        command = command_line(hydra_config.overrides.task, multirun=False)
        exit_status = run_study([request], Path("runs"), Path("reports"), command)
    except ConfigError as error:  # caught here, since Hydra would print the command's overrides first
        exit_status = refuse_request(error)
    sys.exit(exit_status)


def refuse_request(error: Exception) -> int:
    """Print in one line what is wrong with the command; the exit status."""
    text = one_line(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        choice = str(error.missing_cfg_file).replace("/", "=")
        text = f"{choice} does not exist; there are {', '.join(error.options)}"
    elif text.startswith("Could not override"):  # the rest tells how to add a key, which nothing reads
        text = f"{text.split(' To append')[0]} `python train.py --cfg job` prints every setting."
    return refuse("poslab", text)


def main() -> None:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra's errors arrive here and become one line
    arguments = sys.argv[1:]
    try:
        if "status" in arguments:  # a command of its own, which Hydra does not know
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ends the view
            sys.exit(status([argument for argument in arguments if argument != "status"]))
        single()
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        sys.exit(refuse_request(error))
    except TakenError as error:
        message = f"another command has had the lock {error} for long: has it stopped working?"
        sys.exit(refuse("poslab", message, FAILED))
    except OSError as error:  # a full disk, a folder that cannot be written
        sys.exit(refuse("poslab", error_text(error), FAILED))


if __name__ == "__main__":
    try:
        main()
    except SystemExit as leaving:
        if leaving.code in (130, 143):  # Python's own end would wait for W&B's service
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(leaving.code)
        raise
