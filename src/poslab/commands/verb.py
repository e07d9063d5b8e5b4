"""The frame of every command but `train`: its help, and each error in one line with a status."""

from collections.abc import Callable

from poslab.config.arguments import FAILED, INTERRUPTED, ArgumentError, help_requested, refuse
from poslab.config.installation import title, typed

Main = Callable[[list[str]], int]


def verb(name: str, usage: str) -> Callable[[Main], Main]:
    """Return a decorator that makes the `main` of the command `name` of a function of its arguments."""

    def framed(act: Main) -> Main:
        def main(arguments: list[str]) -> int:
            """Return the exit status; where it is 1, 2 or 130, a line on standard error says why."""
            if help_requested(arguments, usage.format(command=typed(name), train=typed("train"))):
                return 0
            try:
                return act(arguments)
            except BrokenPipeError:  # whoever read the output has seen enough
                raise
            except ArgumentError as error:  # answered at once: nothing slow is imported
                return refuse(title(name), str(error))
            except KeyboardInterrupt:
                return refuse(title(name), "stopped", INTERRUPTED)
            except Exception as error:
                return _refused(name, error)

        return main

    return framed


def _refused(name: str, error: Exception) -> int:
    from poslab.config.schema import ConfigError
    from poslab.config.text import error_text, one_line
    from poslab.loggers.fetch.account import SourceError
    from poslab.record.locks import TakenError
    from poslab.record.reader import ReportError

    match error:
        case SourceError():
            return refuse(title(name), str(error), error.status)
        case ConfigError() | ReportError():
            return refuse(title(name), one_line(error))
        case TakenError():
            held = f"another command uses the same files: it holds the lock {error}"
            return refuse(title(name), held, FAILED)
        case OSError():
            return refuse(title(name), error_text(error), FAILED)
    raise error
