"""Check that a positional scheme keeps its contract under every attention."""

from typing import TYPE_CHECKING, Any

from poslab.commands.verb import conf_with, verb
from poslab.config.errors import UserError

if TYPE_CHECKING:
    from poslab.config.option_files import Conf

USAGE = """\
Check a positional scheme under every attention: shapes, causality, shift invariance if it claims that, its
fast forms and their gradients against plain products, and that the chunk size has no effect.

  {command} NAME [conf=DIR] [OPTION=VALUE ...]

  NAME    an option of pos (rope), or the module of a scheme (mypackage.module)
  conf    a folder with your own option files (pos/NAME.yaml, attention/NAME.yaml), besides poslab's
  OPTION  an option of the scheme, needed if no option file sets it

The exit status is 1 if a check FAILED. Agreement with the scheme's paper is not checked.
"""
WORDS = {True: "passed", False: "FAILED", None: "not tried"}


@verb("check-scheme", USAGE)
def main(arguments: list[str]) -> int:
    """Check the scheme that the arguments name, and return exit status 1 if a check failed."""
    from poslab.config.compose import sections

    names = [argument for argument in arguments if "=" not in argument]
    if len(names) != 1 or names[0].startswith("-"):
        raise UserError("give one scheme: an option of pos, or a module such as mypackage.module")
    folders = [argument for argument in arguments if argument.startswith("conf=")]
    conf = conf_with(argument.removeprefix("conf=") for argument in folders)
    settings = [argument for argument in arguments if argument not in (*names, *folders)]
    return _check(_section(names[0], conf, settings), sections(conf, "attention"))


def _section(name: str, conf: "Conf", settings: list[str]) -> dict[str, Any]:
    """Return the section `pos` that the arguments describe. Raise UserError if it is incomplete."""
    from omegaconf import OmegaConf

    from poslab.config.registry import find
    from poslab.library.parts import scheme_section
    from poslab.model import positions

    options: Any = OmegaConf.to_container(OmegaConf.from_dotlist(settings))
    part = name if name in conf.options("pos") else {"scheme": name}
    section = {**scheme_section(part, conf), **options}
    kind = find(section["scheme"], positions.Scheme, positions.__name__, "pos.scheme")
    fields = kind.options_class.model_fields
    if missing := [key for key, field in fields.items() if field.is_required() and key not in section]:
        settings_to_add = " ".join(f"{key}=VALUE" for key in missing)
        raise UserError(f"{name} has no option file that sets {', '.join(missing)}: add {settings_to_add}")
    return section


def _check(section: dict[str, Any], attentions: dict[str, dict[str, Any]]) -> int:
    from poslab.model.verification import check_scheme

    outcomes = []
    for outcome in check_scheme(section, attentions):
        outcomes.append(outcome.passed)
        note = f": {outcome.note}" if outcome.note else ""
        print(f"{WORDS[outcome.passed]:<9}  {outcome.title}{note}")
    counts = (f"{outcomes.count(passed)} {word}" for passed, word in WORDS.items() if passed in outcomes)
    print(", ".join(counts))
    return int(False in outcomes)
