"""The settings that do not affect a run's result: its study, tuning, loggers and launcher."""

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
    """Rates to try for each arm before a study: all pairs of both lists, on other seeds and training text."""

    factors: Annotated[list[float], ONCE_EACH] = Field(description="multiples of trainer.learning_rate")
    scheme_factors: Annotated[list[float], ONCE_EACH] = Field(
        description="multiples of trainer.scheme_rate, for schemes that have their own parameters"
    )
    seeds: Annotated[list[int], ONCE_EACH] = Field(
        description="seeds of the trials; the seeds of the study must differ from them"
    )

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        if bool(self.factors) != bool(self.seeds):
            raise ValueError("factors and seeds must be set together: tune=learning_rate sets both")
        if self.scheme_factors and not self.factors:
            raise ValueError("scheme_factors are tried with each of factors: set factors too")
        factors = [*self.factors, *self.scheme_factors]
        if any(factor <= 0 for factor in factors) or any(seed < 0 for seed in self.seeds):
            raise ValueError("factors must be above 0 and seeds at least 0")
        for name in ("factors", "scheme_factors"):
            if len(getattr(self, name)) == 1:
                raise ValueError(f"{name}={getattr(self, name)} has one value: list two or more")
        return self


PROJECT = "poslab"  # the default W&B project


WANDB = "wandb"  # the logger with options directly below `logger`: logger.project


def logger_sections(merged: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return one section for each logger, by name, from the merged option files of `logger`.

    Options outside a section belong to the logger `name`, where `local` means none. Raise ValueError.
    """
    options = {key: value for key, value in merged.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in merged.items() if key not in options}
    check_classes({key: section for key, section in sections.items() if "name" not in section})
    name = options.get("name", "local")
    if not isinstance(name, str):
        raise ValueError(f"name={name!r} is not a logger")
    if name == "local" and (unknown := options.keys() - {"name"}):
        raise ValueError(
            f"logger=local sends nothing and has no {min(unknown)}: leave out logger.{min(unknown)}, or "
            "choose another logger in place of local"
        )
    return sections if name == "local" else {name: options, **sections}


class Config(RunConfig):
    """All settings of a run: those that affect its result, and where it is stored, logged and launched."""

    study: str = Field(description="name of the study: runs are in RUNS/STUDY/, the report in REPORTS/STUDY/")
    runs: str = Field(default="runs", min_length=1, description="folder with the runs of all studies")
    reports: str = Field(default="reports", min_length=1, description="folder with all reports")
    question: str | None = Field(min_length=1, max_length=500, description="question for the study to answer")
    plan: bool | str = Field(
        default=False,
        description="true: print the runs and start none; measure: also time some steps; 8x80GB: "
        "as for eight GPUs of 80 GB",
    )
    branches: bool = Field(default=False, description="with wsd: budgets share their steps before the decay")
    tune: TuneOptions
    reference: str | None = Field(description="arm that the other arms are compared with; null: the first")
    primary: str | None = Field(description="loss to test; null: sliding_8x, or the longest length below")
    logger: dict[str, dict[str, Any]] = Field(
        default={}, description="a section for each logger, chosen with logger=NAME or logger=[NAME,...]"
    )
    launcher: dict[str, Any] = Field(description="section of the launcher, chosen with launcher=NAME")

    @model_validator(mode="after")
    def _tuning_has_seeds_of_its_own(self) -> Self:
        if self.seed in self.tune.seeds:
            raise ValueError(f"seed={self.seed} is among tune.seeds={self.tune.seeds}: choose another one")
        if self.part == "tuning" and self.tune.factors:
            raise ValueError("tune.factors sets part=tuning for its trials: leave one of them out")
        return self

    @field_validator("logger", mode="before")
    @classmethod
    def _a_section_for_each_logger(cls, value: Any) -> Any:
        return logger_sections(value) if isinstance(value, Mapping) else value

    @field_validator("runs", "reports")
    @classmethod
    def _folder_may_be_in_the_users_home(cls, folder: str) -> str:
        return os.path.expanduser(folder)

    @field_validator("primary")
    @classmethod
    def _primary_names_a_figure(cls, primary: str | None) -> str | None:
        if primary is not None and primary not in FIGURES:
            raise ValueError(f"{primary[:60]!r} is not a testable loss; these are: {', '.join(FIGURES)}")
        return primary

    @field_validator("study")
    @classmethod
    def _study_names_a_folder(cls, study: str) -> str:
        if not NAME.fullmatch(study):
            raise ValueError(
                f"{study[:100]!r} must be letters, digits, '.', '_' or '-', the first a letter or digit"
            )
        return study


def whole_numbers(settings: Mapping[str, Any], kind: type[Options] = Config) -> dict[str, Any]:
    """Return the settings with 1e6 as 1000000 if an integer is needed: YAML reads 1e6 as a float."""
    read = dict(settings)
    for name, field in kind.model_fields.items():
        value, expected = read.get(name), field.annotation
        if isinstance(value, float) and int in (expected, *get_args(expected)) and value.is_integer():
            read[name] = int(value)
        elif isinstance(value, Mapping) and isinstance(expected, type) and issubclass(expected, Options):
            read[name] = whole_numbers(value, expected)
    return read


# Settings that do not affect a run's result: where it is stored, logged and launched, and the arm that others
# are compared with. A checkpoint does not contain them; a trained model is loaded with these values.
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


# The only setting outside of a configuration: the run that provides the default of the others.
FROM = (
    "from",
    "text | null",
    "finished run to start from, with its weights and with its settings unless the command changes them: a "
    "run directory, STUDY/RUN, or a run name that only one study has",
)


@dataclass(frozen=True)
class Start:
    """A finished run that provides the initial weights of another run."""

    directory: str
    study: str
    run: str
    identity: str
    checkpoint: str  # the SHA-256 of its weights
    steps: int  # optimizer steps of the weights, including those of the run's own start
    tokens: int  # training tokens, likewise
    context_length: int
    arm: str  # the settings that affect its result, without the seed, as a short text

    def origin(self) -> dict[str, Any]:
        """Return its description for a record, without `directory` and `arm`."""
        return {name: value for name, value in asdict(self).items() if name not in ("directory", "arm")}


@dataclass(frozen=True)
class Request:
    """A run that a command requests: its configuration, and the names of its options in tables."""

    config: Config
    pos: str
    attention: str
    non_default_settings: tuple[str, ...] = ()  # other changes of defaults: `model.width=64`
    distinguishing_label: str = ""  # those not shared by all runs of the command
    start: Start | None = None  # the run with its initial weights

    @property
    def title(self) -> str:
        """The run's name in the terminal and in W&B."""
        seed = f"seed {self.config.seed}"
        parts = (self.pos, self.attention, self.distinguishing_label, self.trial, seed)
        return " / ".join(part for part in parts if part)

    @property
    def trial(self) -> str:
        """The learning rates of a tuning trial, for its title; empty for other runs."""
        trainer = self.config.trainer
        if self.config.part != "tuning":
            return ""
        of_scheme = "" if trainer.scheme_rate == 1 else f", scheme x {trainer.scheme_rate:g}"
        return f"rate {trainer.learning_rate:g}{of_scheme}"


def flat_settings(
    settings: Mapping[str, Any], prefix: str = "", clean: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return a configuration's values by dotted key, as on the command line: `trainer.max_steps`.

    `clean` is applied to the name of each section and setting, for names from outside.
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{clean(name)}"
        flat |= flat_settings(value, f"{key}.", clean) if isinstance(value, dict) else {key: value}
    return flat
