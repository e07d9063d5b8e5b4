"""Weights & Biases: online if there is a login and the server answers, otherwise offline, to send later."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from pydantic import Field, field_validator, model_validator

from poslab.config.request import PROJECT, WANDB
from poslab.config.schema import Options
from poslab.config.text import IN_A_URL
from poslab.loggers import OpenedRun, RunLogger, build_logger


def default_project() -> str:
    """Return the project of runs if the command names none."""
    return os.environ.get("WANDB_PROJECT") or PROJECT


class WandbOptions(Options):
    project: str | None = Field(description=f"null: the value of WANDB_PROJECT, else {PROJECT}")
    entity: str | None = Field(
        default=None, description="the account or team; null: the value of WANDB_ENTITY, else your account"
    )
    tags: list[str] | None = Field(description="tags added to poslab's; null: the comma-separated WANDB_TAGS")
    checkpoints: bool = Field(description="whether to send each finished run's weights as an artifact")
    console: bool = Field(
        default=False, description="whether to send a run's output, without paths and secrets"
    )
    system_statistics: bool = Field(
        default=False,
        description="whether W&B shows the use of GPUs, CPU, memory and disk during training",
    )
    git_commit: bool = Field(
        default=False, description="whether W&B shows the commit of the checkout, without its address"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_variables(cls, given: Any) -> Any:
        """Replace settings that are null with the values of W&B's environment variables."""
        defaults = {
            "project": default_project(),
            "entity": os.environ.get("WANDB_ENTITY") or None,
            "tags": [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()],
        }
        return {**defaults, **{name: value for name, value in given.items() if value is not None}}

    @field_validator("project", "entity")
    @classmethod
    def _names_a_place_in_wandb(cls, name: str | None) -> str | None:
        if name is not None and not IN_A_URL.fullmatch(name):
            raise ValueError(f"{name[:100]!r} must be 1 to 128 characters, no space and none of / \\ # ? % :")
        return name


class Wandb(RunLogger):
    """A run in W&B from this process. W&B's own process, which sends the data, ends with this one."""

    options_class = WandbOptions
    options: WandbOptions
    title = "W&B"

    @property
    def wanted(self) -> bool:
        return os.environ.get("WANDB_MODE") != "disabled"

    def open(self, run: OpenedRun) -> None:
        import wandb  # takes a second

        from poslab.loggers.send.login import forget_client
        from poslab.loggers.send.run import TrackedRun, own_variables

        self.place, self._held, self._owns_client = {}, ExitStack(), False
        self._held.enter_context(own_variables(run.directory))
        self._held.callback(forget_client)
        # If the caller has a W&B run open, its client is not killed.
        self._owns_client = wandb.setup().most_recent_active_run is None
        self._run = TrackedRun(self.options, run)
        self.place = self._run.place

    def log(self, row: Mapping[str, Any]) -> None:
        self._run.log(row)

    def finish(self, manifest: str, exit_code: int) -> None:
        with self._held:
            self._run.finish(manifest, exit_code)

    def abandon(self) -> None:
        from poslab.loggers.send.login import kill_client

        with self._held.pop_all():  # so a thread still in `finish` does not end the client of a later run
            if self._owns_client:
                kill_client()


def wandb_options(sections: Mapping[str, Mapping[str, Any]]) -> WandbOptions | None:
    """Return W&B's options from a configuration's loggers; None if W&B is not used. Raise ConfigError."""
    section = next((section for section in sections.values() if section.get("name") == WANDB), None)
    if section is None:
        return None
    logger = build_logger(WANDB, section)
    assert isinstance(logger, Wandb)
    return logger.options if logger.wanted else None
