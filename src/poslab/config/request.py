"""What a command sets beside what decides a run's result: its study, tuning, logger and launcher."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from poslab.config.schema import MULTIPLES, Options, RunConfig, check_classes
from poslab.config.text import IN_A_URL, NAME

# The figures that a report can test: the loss in sliding or in non-overlapping windows of a multiple of L.
FAMILIES = ("sliding", "loss", "sliding_bits_per_byte", "bits_per_byte")
FIGURES = tuple(f"{family}_{multiple:g}x" for family in FAMILIES for multiple in (0.5, *MULTIPLES))


class TuneOptions(Options):
    """Rates tried for each arm before a study, on seeds and text of their own: all pairs of both lists."""

    factors: list[float] = Field(description="of trainer.learning_rate")
    scheme_factors: list[float] = Field(
        description="of trainer.scheme_rate, for arms whose scheme has parameters of its own"
    )
    seeds: list[int] = Field(description="of the trials; the study's own seeds must be others")

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        if bool(self.factors) != bool(self.seeds):
            raise ValueError("factors and seeds are needed together")
        if self.scheme_factors and not self.factors:
            raise ValueError("scheme_factors are tried with each of factors: name these too")
        factors = [*self.factors, *self.scheme_factors]
        if any(factor <= 0 for factor in factors) or any(seed < 0 for seed in self.seeds):
            raise ValueError("factors must be above 0 and seeds not below")
        for values in (self.factors, self.scheme_factors, self.seeds):
            if len(set(values)) < len(values):
                raise ValueError(f"{values} names one twice")
        for name in ("factors", "scheme_factors"):
            if len(getattr(self, name)) == 1:
                raise ValueError(f"{name}={getattr(self, name)} leaves nothing to choose")
        return self


PROJECT = "poslab"  # of W&B, where nothing names another one


class LoggerOptions(Options):
    name: Literal["wandb", "local"] = Field(description="the module that tracks runs")
    project: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description=f"of W&B; null: what WANDB_PROJECT says, else {PROJECT}",
    )
    entity: str | None = Field(
        default=None,
        description="the account or team of W&B; null: what WANDB_ENTITY says, else your account's own",
    )
    tags: list[str] | None = Field(
        default=None, description="of W&B, beside poslab's own; null: those in WANDB_TAGS, by commas"
    )
    checkpoints: bool | None = Field(
        default=None, description="whether each finished run's weights go to W&B as an artifact"
    )
    console: bool | None = Field(
        default=None, description="whether what a run prints goes to W&B, without paths and secrets"
    )
    system_statistics: bool | None = Field(
        default=None, description="whether W&B shows the use of GPUs, CPU, memory and disk while a run trains"
    )
    git_commit: bool | None = Field(
        default=None, description="whether W&B shows the commit of the checkout, without its address"
    )

    others: dict[str, dict[str, Any]] | None = Field(
        default=None,
        description="loggers of Lightning, which +logger.NAME={_target_: CLASS} adds: a section each",
    )

    @model_validator(mode="before")
    @classmethod
    def _others_are_sections(cls, given: Any) -> Any:
        """What is a section in the configuration is a further logger; without W&B its `name` is local."""
        if not isinstance(given, dict):
            return given
        others = {key: value for key, value in given.items() if isinstance(value, dict) and key != "others"}
        if not others:
            return given
        check_classes(others)
        return {"name": "local", **{key: given[key] for key in given if key not in others}, "others": others}

    @model_validator(mode="before")
    @classmethod
    def _by_variables(cls, given: Any) -> Any:
        """What W&B's own variables say, where a setting is null."""
        if not isinstance(given, dict) or given.get("name") != "wandb":
            return given
        by_variables = {
            "project": os.environ.get("WANDB_PROJECT") or PROJECT,
            "entity": os.environ.get("WANDB_ENTITY") or None,
            "tags": [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()],
        }
        return {**by_variables, **{name: value for name, value in given.items() if value is not None}}

    @field_validator("project", "entity")
    @classmethod
    def _names_a_place_in_wandb(cls, name: str | None) -> str | None:
        if name is not None and not IN_A_URL.fullmatch(name):
            raise ValueError(f"{name[:100]!r} must be 1 to 128 characters, no space and none of / \\ # ? % :")
        return name

    @model_validator(mode="after")
    def _local_has_no_options(self) -> Self:
        if self.name == "wandb" and self.checkpoints is None:
            raise ValueError("checkpoints is needed by logger=wandb")
        for name in type(self).model_fields:
            if self.name == "local" and name not in ("name", "others") and getattr(self, name) is not None:
                raise ValueError(f"{name} is unknown to logger=local")
        return self


class Config(RunConfig):
    """All settings of a run: what decides its result, and where it is stored, logged and launched."""

    study: str = Field(description="runs lie in RUNS/STUDY/, the report in REPORTS/STUDY/")
    runs: str = Field(default="runs", min_length=1, description="the folder of all studies' runs")
    reports: str = Field(default="reports", min_length=1, description="the folder of all reports")
    question: str | None = Field(min_length=1, max_length=500, description="what the study is to answer")
    tune: TuneOptions
    reference: str | None = Field(description="the arm that a study's others are compared with")
    primary: str | None = Field(description="the figure that a study's report tests, such as sliding_8x")
    logger: LoggerOptions
    launcher: dict[str, Any] = Field(description="the section of the launcher, which launcher=NAME chooses")

    @model_validator(mode="after")
    def _tuning_has_seeds_of_its_own(self) -> Self:
        if self.seed in self.tune.seeds:
            raise ValueError(f"seed={self.seed} is among tune.seeds={self.tune.seeds}: choose another one")
        if self.part == "tuning" and self.tune.factors:
            raise ValueError("part=tuning is what tune.factors makes runs with: leave one of them out")
        return self

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
    """The settings with 1e6 as 1000000 wherever a whole number is asked for: YAML reads it as a float."""
    read = dict(settings)
    for name, field in kind.model_fields.items():
        value, asked = read.get(name), field.annotation
        if isinstance(value, float) and int in (asked, *get_args(asked)) and value.is_integer():
            read[name] = int(value)
        elif isinstance(value, Mapping) and isinstance(asked, type) and issubclass(asked, Options):
            read[name] = whole_numbers(value, asked)
    return read


# Settings that do not decide a run's result: where it is stored, logged and launched, what it is compared
# with. A checkpoint leaves them out; these are the values with which a trained model is loaded.
BESIDE_THE_RESULT: Mapping[str, Any] = {
    "study": "loaded",
    "runs": "runs",
    "reports": "reports",
    "question": None,
    "tune": {"factors": [], "scheme_factors": [], "seeds": []},
    "reference": None,
    "primary": None,
    "logger": {"name": "local"},
    "launcher": {"name": "local"},
}


# The one setting that is none of a configuration: it says from where the others are taken.
FROM = (
    "from",
    "text | null",
    "a finished run whose weights the run begins with: its directory, STUDY/RUN, or a name that one study "
    "has; what the command does not name is as there",
)


@dataclass(frozen=True)
class Start:
    """A finished run whose weights another run begins with."""

    directory: str
    study: str
    run: str
    identity: str
    checkpoint: str  # the SHA-256 of its weights
    steps: int  # optimizer steps that the weights have had, those of its own source included
    tokens: int  # likewise
    context_length: int
    arm: str  # all that its result depends on but its seed, in a few words

    def origin(self) -> dict[str, Any]:
        """What a record says of it: not where it lies."""
        return {name: value for name, value in asdict(self).items() if name not in ("directory", "arm")}


@dataclass(frozen=True)
class Request:
    """A run that a command asks for: its configuration, and the names that tables give its options."""

    config: Config
    pos: str
    attention: str
    non_default_settings: tuple[str, ...] = ()  # all else that is not as the defaults: `model.width=64`
    distinguishing_label: str = ""  # those of them that the command's other runs do not share
    start: Start | None = None  # the run that it goes on from

    @property
    def trial(self) -> str:
        """What a run that tunes tries, as its name says it; nothing for other runs."""
        trainer = self.config.trainer
        if self.config.part != "tuning":
            return ""
        of_scheme = "" if trainer.scheme_rate == 1 else f", scheme x {trainer.scheme_rate:g}"
        return f"rate {trainer.learning_rate:g}{of_scheme}"


def flat_settings(
    settings: Mapping[str, Any], prefix: str = "", clean: Callable[[str], str] = str
) -> dict[str, Any]:
    """A configuration's values by dotted key, as the command line writes them: `trainer.max_steps`.

    `clean` is applied to the name of each section and setting, where they come from outside.
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{clean(name)}"
        flat |= flat_settings(value, f"{key}.", clean) if isinstance(value, dict) else {key: value}
    return flat
