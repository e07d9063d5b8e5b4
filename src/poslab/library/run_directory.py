"""The folder of a run as an object: its facts, its tables as DataFrames, and its trained model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.schema import ConfigError
from poslab.library.weights import load
from poslab.measures import measurements
from poslab.model.gpt import GPT
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.record.schema import METRICS

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class RunDirectory:
    """The folder of a run: its manifest, its tables and its trained model."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).expanduser())  # from a string or a path

    def __fspath__(self) -> str:  # so that `load`, `export` and `open` take it
        return str(self.path)

    @property
    def manifest(self) -> Manifest:
        """The facts of the run as fields: status, configuration, text, device, tokens and more."""
        manifest = read_manifest(self.path)
        if manifest is None:
            raise ConfigError(f"{self.path} is not a run: it has no manifest")
        return manifest

    def table(self, name: str) -> "pandas.DataFrame":
        """Return a table of the run: "metrics", "extrapolation", "position", or another of its CSV files.

        Columns that only later versions write contain NaN. Raise ConfigError, with the names of all tables,
        for an unknown name.
        """
        import pandas

        tables = {path.stem: path for path in sorted(self.path.glob("*.csv"))}
        if name not in tables:
            raise ConfigError(f"{self.path} has no table {name}; it has {', '.join(tables) or 'none'}")
        table = pandas.read_csv(tables[name])
        schemas = (METRICS, *(measurement.table for measurement in measurements()))
        optional = next((schema.optional for schema in schemas if schema.file == tables[name].name), ())
        return table.reindex(columns=[*dict.fromkeys([*table.columns, *optional])])

    def model(self) -> GPT:
        """Return the trained model, in evaluation mode on the CPU, as `poslab.load` does."""
        return load(self.path)
