"""Train one run, or with -m the runs of a study."""

import os
import re
import sys
from typing import Any

from poslab.commands.hydra_arguments import check_hydra_arguments
from poslab.commands.verb import answered, conf_with, config_dir
from poslab.config.arguments import HELP, refuse
from poslab.config.installation import conf_folder, typed
from poslab.config.text import without_secrets


def main(arguments: list[str]) -> int:
    """Train the runs that Hydra's arguments describe, and return the exit status.

    Hydra ends the process itself if runs fail or are stopped.
    """
    return answered("poslab", lambda: _answer(["--help"] if arguments == ["help"] else arguments))


def _answer(arguments: list[str]) -> int:
    folder, remaining = config_dir(arguments)
    if topics := _topics(remaining):
        from poslab.study.settings import help_text

        print(help_text(conf_with(filter(None, [folder])), topics), end="")
        return 0
    check_hydra_arguments(arguments)
    return _train(arguments, folder)


def _topics(arguments: list[str]) -> list[str]:
    """Return the settings and groups that --help should explain, or [] for the help of the whole command.

    Settings with a value beside --help, such as plan=true, are ignored.
    """
    words = [argument for argument in arguments if argument not in HELP and "=" not in argument]
    is_help = not HELP.isdisjoint(arguments) and all(re.fullmatch(r"[\w.]+", word) for word in words)
    return words if is_help else []


def _train(arguments: list[str], folder: str) -> int:
    failures: list[Exception] = []

    def without_failing(composed: Any) -> None:
        """Catch every error: if a task fails, Hydra prints all overrides, including secrets."""
        try:
            _single(composed)
        except Exception as error:
            failures.append(error)

    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from poslab.config.mistakes import explained, read_arguments
    from poslab.config.sweep import for_each_run

    conf = conf_with(filter(None, [folder]))
    arguments = read_arguments(arguments, conf)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra's errors arrive here and become one line
    several = any(text in ("-m", "--multirun") or text.startswith("sweep=") for text in arguments)
    OmegaConf.register_new_resolver("poslab_examples", _examples, replace=True)
    try:
        sys.argv[1:] = for_each_run(arguments, conf) if several else arguments  # which Hydra reads there
        hydra.main(config_path=str(conf_folder()), config_name="config", version_base="1.3")(
            without_failing
        )()
        if failures:
            raise failures[0]
    except (HydraException, OmegaConfBaseException) as error:
        return refuse("poslab", without_secrets(explained(error, conf)))
    return 0


def _single(composed: Any) -> None:
    """Train the run that Hydra composed."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from poslab.config.compose import command_line
    from poslab.config.option_files import conf_of
    from poslab.study.run.start import request_of

    hydra_config = HydraConfig.get()
    settings: Any = OmegaConf.to_container(composed, resolve=True)
    conf = conf_of(hydra_config.runtime.config_sources)
    request = request_of(settings, hydra_config.runtime.choices, hydra_config.overrides.task, conf)
    # Imported only now, so that --help and a wrong setting are answered at once.
    from poslab.study.execute import run_study

    sys.exit(run_study([request], command_line(hydra_config.overrides.task, multirun=False)))


# The examples of --help: a command, its arguments, and what it does.
EXAMPLES = (
    ("train", "pos=alibi", "one run"),
    ("train", "-m pos=rope,alibi", "a study: two runs, then reports/ablation/index.html"),
    ("train", "-m pos=rope,t5 attention=softmax,flash,linear seed=0,1,2", "every combination"),
    ("train", "-m sweep=extrapolation", "a predefined study"),
    ("train", "data=text data.path=FILE", "your own text (a file, a directory, .gz)"),
    ("train", "pos=rope 'evaluate.rescale=[none,ntk,yarn]'", "also evaluate with other frequencies"),
    ("train", "-m pos=rope,alibi seed=0,1,2 tune=learning_rate", "with a learning rate tuned for each"),
    ("train", "-m pos=rope,alibi runs=DIR reports=DIR", "use other folders, such as on another disk"),
    ("status", "study=ablation", "the state of its runs, even while another command runs them"),
    ("report", "study=ablation", "write the report again, from the records"),
)
COLUMN = 48  # where the notes begin, on the next line after a longer command


def _examples() -> str:
    """Return the end of --help, with commands in the form that the user types."""
    lines = [
        f"{typed('train')} --help settings explains every setting, --help trainer those of a group.",
        "",
        "With -m, commas separate the values of a sweep; every other command is one run:",
        "",
    ]
    for command, arguments, note in EXAMPLES:
        line = f"  {typed(command)} {arguments}"
        if len(line) + 2 > COLUMN:
            lines.append(line)
            line = ""
        lines.append(f"{line:<{COLUMN}}{note}")
    ending = f"{typed('train')} pos=rope --cfg job prints the settings of a run without training it."
    return "\n".join([*lines, "", ending])
