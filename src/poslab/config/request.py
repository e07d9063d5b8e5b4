"""The settings of a command that do not decide a run's result: its study, tuning, logger and launcher."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self, get_args

from pydantic import Field, field_validator, model_validator

from poslab.config.schema import MULTIPLES, ONCE_EACH, Options, RunConfig, check_classes
from poslab.config.text import NAME

# The figures that a report can test: the loss in sliding or in non-overlapping windows of a multiple of L.
FAMILIES = ("sliding", "loss", "sliding_bits_per_byte", "bits_per_byte")
FIGURES = tuple(f"{family}_{multiple:g}x" for family in FAMILIES for multiple in (0.5, *MULTIPLES))


class TuneOptions(Options):
    """Rates tried for each arm before a study, on seeds and text of their own: all pairs of both lists."""

    factors: Annotated[list[float], ONCE_EACH] = Field(description="of trainer.learning_rate")
    scheme_factors: Annotated[list[float], ONCE_EACH] = Field(
        description="of trainer.scheme_rate, for arms with a scheme that has parameters of its own"
    )
    seeds: Annotated[list[int], ONCE_EACH] = Field(
        description="of the trials; the study's own seeds must be others"
    )

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        if bool(self.factors) != bool(self.seeds):
            raise ValueError("factors and seeds are needed together")
        if self.scheme_factors and not self.factors:
            raise ValueError("scheme_factors are tried with each of factors: name these too")
        factors = [*self.factors, *self.scheme_factors]
        if any(factor <= 0 for factor in factors) or any(seed < 0 for seed in self.seeds):
            raise ValueError("factors must be above 0 and seeds not below")
        for name in ("factors", "scheme_factors"):
            if len(getattr(self, name)) == 1:
                raise ValueError(f"{name}={getattr(self, name)} leaves nothing to choose")
        return self


PROJECT = "poslab"  # of W&B, where nothing names another one


WANDB = "wandb"  # the logger with options directly below `logger`: logger.project


def logger_sections(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the loggers by name, a section each, from what the option files of `logger` hold.

    Options outside of any section are those of the logger `name`; `local` is none. Raises ValueError.
    """
    options = {key: value for key, value in given.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in given.items() if key not in options}
    check_classes({key: section for key, section in sections.items() if "name" not in section})
    name = options.get("name", "local")
    if not isinstance(name, str):
        raise ValueError(f"name={name!r} is no logger")
    if name == "local" and (unknown := options.keys() - {"name"}):
        raise ValueError(
            f"logger=local sends nothing and takes no {min(unknown)}: leave out logger.{min(unknown)}, or "
            "choose another logger in place of local"
        )
    return sections if name == "local" else {name: options, **sections}


class Config(RunConfig):
    """All settings of a run: what decides its result, and where it is stored, logged and launched."""

    study: str = Field(description="runs lie in RUNS/STUDY/, the report in REPORTS/STUDY/")
    runs: str = Field(default="runs", min_length=1, description="the folder of all studies' runs")
    reports: str = Field(default="reports", min_length=1, description="the folder of all reports")
    question: str | None = Field(min_length=1, max_length=500, description="what the study is to answer")
    plan: bool | str = Field(
        default=False,
        description="true: print the runs and start none; measure: time steps first; 8x80GB: on such GPUs",
    )
    branches: bool = Field(default=False, description="under wsd: budgets share their steps before the decay")
    tune: TuneOptions
    reference: str | None = Field(description="the arm that a study's others are compared with")
    primary: str | None = Field(description="the figure that a study's report tests, such as sliding_8x")
    logger: dict[str, dict[str, Any]] = Field(
        default={}, description="the loggers, which logger=NAME or logger=[NAME,...] chooses: a section each"
    )
    launcher: dict[str, Any] = Field(description="the section of the launcher, which launcher=NAME chooses")

    @model_validator(mode="after")
    def _tuning_has_seeds_of_its_own(self) -> Self:
        if self.seed in self.tune.seeds:
            raise ValueError(f"seed={self.seed} is among tune.seeds={self.tune.seeds}: choose another one")
        if self.part == "tuning" and self.tune.factors:
            raise ValueError("part=tuning is set by tune.factors for its trials: leave one of them out")
        return self

    @field_validator("logger", mode="before")
    @classmethod
    def _a_section_for_each_logger(cls, given: Any) -> Any:
        return logger_sections(given) if isinstance(given, Mapping) else given

    @field_validator("runs", "reports")
    @classmethod
    def _folder_may_be_in_the_users_home(cls, folder: str) -> str:
        return os.path.expanduser(folder)

    @field_validator("primary")
    @classmethod
    def _primary_names_a_figure(cls, primary: str | None) -> str | None:
        if primary is not None and primary not in FIGURES:
            raise ValueError(
                f"{primary[:60]!r} is no loss that can be tested; there are {', '.join(FIGURES)}"
            )
        return primary

    @field_validator("study")
    @classmethod
    def _study_names_a_folder(cls, study: str) -> str:
        if not NAME.fullmatch(study):
            raise ValueError(
                f"{study[:100]!r} must be letters, digits, '.', '_', '-', the first a letter or digit"
            )
        return study


def whole_numbers(settings: Mapping[str, Any], kind: type[Options] = Config) -> dict[str, Any]:
    """Return the settings with 1e6 as 1000000 where a whole number is needed: YAML reads it as a float."""
    read = dict(settings)
    for name, field in kind.model_fields.items():
        value, asked = read.get(name), field.annotation
        if isinstance(value, float) and int in (asked, *get_args(asked)) and value.is_integer():
            read[name] = int(value)
        elif isinstance(value, Mapping) and isinstance(asked, type) and issubclass(asked, Options):
            read[name] = whole_numbers(value, asked)
    return read


# Settings that do not decide a run's result: where it is stored, logged and launched, and the arm that others
# are compared with. A checkpoint leaves them out; a trained model is loaded with these values.
BESIDE_THE_RESULT: Mapping[str, Any] = {
    "study": "loaded",
    "runs": "runs",
    "reports": "reports",
    "question": None,
    "plan": False,
    "branches": False,
    "tune": {"factors": [], "scheme_factors": [], "seeds": []},
    "reference": None,
    "primary": None,
    "logger": {},
    "launcher": {"name": "local"},
}


# The only setting outside of a configuration: the run that gives the others.
FROM = (
    "from",
    "text | null",
    "a finished run with the weights to begin from: its directory, STUDY/RUN, or a name that one study "
    "has; settings that the command does not name are as there",
)


@dataclass(frozen=True)
class Start:
    """A finished run with the weights that another run begins with."""

    directory: str
    study: str
    run: str
    identity: str
    checkpoint: str  # the SHA-256 of its weights
    steps: int  # optimizer steps that the weights have had, those of its own source included
    tokens: int  # likewise
    context_length: int
    arm: str  # the settings that decide its result, without its seed, in a few words

    def origin(self) -> dict[str, Any]:
        """Return its description for a record, without its folder."""
        return {name: value for name, value in asdict(self).items() if name not in ("directory", "arm")}


@dataclass(frozen=True)
class Request:
    """A run that a command asks for: its configuration, and the names that tables give its options."""

    config: Config
    pos: str
    attention: str
    non_default_settings: tuple[str, ...] = ()  # all else that is not as the defaults: `model.width=64`
    distinguishing_label: str = ""  # those of them that the command's other runs do not share
    start: Start | None = None  # the run that it continues

    @property
    def title(self) -> str:
        """The run's name in the terminal and in W&B."""
        seed = f"seed {self.config.seed}"
        parts = (self.pos, self.attention, self.distinguishing_label, self.trial, seed)
        return " / ".join(part for part in parts if part)

    @property
    def trial(self) -> str:
        """The rates that a trial of tuning tries, for its name; empty for other runs."""
        trainer = self.config.trainer
        if self.config.part != "tuning":
            return ""
        of_scheme = "" if trainer.scheme_rate == 1 else f", scheme x {trainer.scheme_rate:g}"
        return f"rate {trainer.learning_rate:g}{of_scheme}"


def flat_settings(
    settings: Mapping[str, Any], prefix: str = "", clean: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return a configuration's values by dotted key, as the command line writes them: `trainer.max_steps`.

    `clean` is applied to the name of each section and setting, where they come from outside.
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{clean(name)}"
        flat |= flat_settings(value, f"{key}.", clean) if isinstance(value, dict) else {key: value}
    return flat
