"""What a command asks for beside what decides a run's result: its study, tuning, tracking and launcher."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from poslab.config.schema import Options, RunConfig
from poslab.config.text import NAME


class TuneOptions(Options):
    """Learning rates tried for each arm before a study, on seeds and text of their own."""

    factors: list[float] = Field(description="of trainer.learning_rate")
    seeds: list[int]

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        if bool(self.factors) != bool(self.seeds):
            raise ValueError("factors and seeds are needed together")
        if any(factor <= 0 for factor in self.factors) or any(seed < 0 for seed in self.seeds):
            raise ValueError("factors must be above 0 and seeds not below")
        for values in (self.factors, self.seeds):
            if len(set(values)) < len(values):
                raise ValueError(f"{values} names one twice")
        if len(self.factors) == 1:
            raise ValueError(f"factors={self.factors} leaves nothing to choose")
        return self


class LoggerOptions(Options):
    name: Literal["wandb", "local"]
    project: str | None = Field(default=None, min_length=1, max_length=128)
    entity: str | None = None
    checkpoints: bool | None = None

    @model_validator(mode="after")
    def _project_belongs_to_wandb(self) -> Self:
        if (self.name == "wandb") != (self.project is not None):
            raise ValueError("project is needed by logger=wandb and unknown to logger=local")
        if (self.name == "wandb") != (self.checkpoints is not None):
            raise ValueError("checkpoints is needed by logger=wandb and unknown to logger=local")
        if self.name == "local" and self.entity is not None:
            raise ValueError("entity is unknown to logger=local")
        return self


class Config(RunConfig):
    """A run as a command asks for it: what decides its result, and where it is kept, tracked and launched."""

    study: str
    question: str | None = Field(min_length=1, max_length=500, description="what the study is to answer")
    tune: TuneOptions
    reference: str | None = Field(description="the arm that a study's others are compared with")
    logger: LoggerOptions
    launcher: dict[str, Any]

    @model_validator(mode="after")
    def _tuning_has_seeds_of_its_own(self) -> Self:
        if self.seed in self.tune.seeds:
            raise ValueError(f"seed={self.seed} is among tune.seeds={self.tune.seeds}: choose another one")
        if self.part == "tuning" and self.tune.factors:
            raise ValueError("part=tuning is what tune.factors makes runs with: leave one of them out")
        return self

    @field_validator("study")
    @classmethod
    def _study_names_a_folder(cls, study: str) -> str:
        if not NAME.fullmatch(study):
            raise ValueError(
                f"{study[:100]!r} must be letters, digits, '.', '_', '-', the first a letter or digit"
            )
        return study


# Keys that say where a run is kept, tracked, launched and held against, not what it is.
BESIDE_THE_RESULT = set(Config.model_fields) - set(RunConfig.model_fields)


@dataclass(frozen=True)
class Request:
    """What was asked for: a configuration, and what its scheme and attention are called in tables."""

    config: Config
    pos: str
    attention: str
    non_default_settings: tuple[str, ...] = ()  # what else is not as the defaults have it: `model.width=64`
    distinguishing_label: str = ""  # of it, what tells the run from the others of its command
