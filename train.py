"""Compose a configuration and make its run, or with -m its study; or say how a study stands.

`python train.py --help` says how.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun that could be lost."""
    os.write(2, b"poslab: stopped before anything was trained\n")
    os._exit(128 + number)


if __name__ == "__main__":  # before the imports, which take seconds
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from poslab.config.compose import command_line, request_from
from poslab.config.schema import ConfigError
from poslab.record.locks import TakenError
from poslab.study.status import status


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def single(composed: DictConfig) -> None:
    try:
        hydra_config = HydraConfig.get()
        request = request_from(composed, hydra_config.runtime.choices, Path(__file__).parent / "conf")
        # PyTorch is imported only now: --help and a wrong setting answer at once.
        from poslab.study.conduct import run_study

        command = command_line(hydra_config.overrides.task, multirun=False)
        ended = run_study([request], Path("runs"), Path("reports"), command)
    except ConfigError as error:  # caught here, since Hydra would print the command's overrides first
        ended = refuse(error)
    sys.exit(ended)


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
    arguments = sys.argv[1:]
    try:
        if "status" in arguments:  # a word of its own, which Hydra would refuse
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ends the view
            sys.exit(status([argument for argument in arguments if argument != "status"]))
        single()
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        sys.exit(refuse(error))
    except TakenError as error:
        print(f"poslab: another command has held {error} for long: is it stopped?", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that cannot be written
        print(f"poslab: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except SystemExit as leaving:
        if leaving.code in (130, 143):  # asked to end, and soon: W&B's service would be waited for
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(leaving.code)
        raise
