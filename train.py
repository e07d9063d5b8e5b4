"""Make the run of a configuration, or with -m the runs of a study; or show the state of a study.

`python train.py --help` has the settings and examples.
"""

import os
import re
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

from typing import Any

from poslab.config.arguments import FAILED, HELP, refuse
from poslab.config.schema import ConfigError
from poslab.config.text import error_text, without_secrets
from poslab.record.locks import TakenError

CONF = Path(__file__).parent / "conf"


def single(composed: Any) -> None:
    """Make the run that Hydra has composed."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from poslab.config.compose import command_line, request_from

    hydra_config = HydraConfig.get()
    settings: Any = OmegaConf.to_container(composed, resolve=True)
    request = request_from(settings, hydra_config.runtime.choices, CONF)
    # Imported only now, so that --help and a wrong setting are answered at once.
    from poslab.study.conduct import run_study

    command = command_line(hydra_config.overrides.task, multirun=False)
    sys.exit(run_study([request], Path("runs"), Path("reports"), command))


def refuse_request(error: Exception) -> int:
    """Print in one line what is wrong with the command; the exit status."""
    from poslab.config.mistakes import explained

    return refuse("poslab", without_secrets(explained(error, CONF)))


def show_status(arguments: list[str]) -> int:
    """The command that Hydra does not know and that needs nothing of it; the exit status."""
    from poslab.study.status import status

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ends the view
    return status([argument for argument in arguments if argument != "status"])


def show_settings(arguments: list[str]) -> int:
    """What --help says of single settings and groups; the exit status."""
    from poslab.study.settings import help_text

    print(help_text(CONF, [argument for argument in arguments if argument not in HELP]), end="")
    return 0


def train() -> None:
    """Make the runs that the command line asks for; leaves with the exit status."""
    failures: list[Exception] = []

    def without_failing(composed: Any) -> None:
        """Of a task that fails Hydra would print all overrides, and secrets among them."""
        try:
            single(composed)
        except Exception as error:
            failures.append(error)

    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from poslab.config.mistakes import check_arguments

    check_arguments(sys.argv[1:], CONF)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra's errors arrive here and become one line
    try:
        hydra.main(config_path="conf", config_name="config", version_base="1.3")(without_failing)()
        if failures:
            raise failures[0]
    except (HydraException, OmegaConfBaseException) as error:
        sys.exit(refuse_request(error))


def main() -> None:
    arguments = sys.argv[1:]
    try:
        if "status" in arguments:
            sys.exit(show_status(arguments))
        if (
            not HELP.isdisjoint(arguments)
            and all(re.fullmatch(r"[\w.]+", each) for each in arguments if each not in HELP)
            and len(arguments) > 1
        ):
            sys.exit(show_settings(arguments))
        train()
    except ConfigError as error:
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
