"""poslab trains small GPTs with different positional schemes and measures what each scheme changes.

`import poslab` provides the names below. Each one is imported on first use: PyTorch takes seconds to load,
and neither the import nor the commands wait for modules that they do not need.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poslab.analysis.statistics import Difference as Difference
    from poslab.analysis.statistics import Estimate as Estimate
    from poslab.analysis.statistics import Ratio as Ratio
    from poslab.analysis.statistics import estimate as estimate
    from poslab.analysis.statistics import paired as paired
    from poslab.config.schema import ConfigError as ConfigError
    from poslab.library.composing import compose as compose
    from poslab.library.evaluation import evaluate as evaluate
    from poslab.library.parts import CausalAttention as CausalAttention
    from poslab.library.parts import attention as attention
    from poslab.library.parts import gpt as gpt
    from poslab.library.parts import scheme as scheme
    from poslab.library.run_directory import RunDirectory as RunDirectory
    from poslab.library.studies import Study as Study
    from poslab.library.studies import read as read
    from poslab.library.training import train as train
    from poslab.library.weights import export as export
    from poslab.library.weights import load as load
    from poslab.measures import Measurement as Measurement
    from poslab.model.attention import Mixer as Mixer
    from poslab.model.gpt import GPT as GPT
    from poslab.model.positions import Scheme as Scheme
    from poslab.objectives import Objective as Objective
    from poslab.record.reader import ReportError as ReportError
    from poslab.report.formatting import interval as interval
    from poslab.report.formatting import number as number
    from poslab.report.formatting import quantity as quantity

    __version__: str

# The module of each public name, in the order of docs/api.md.
_MODULES = {
    "scheme": "poslab.library.parts",
    "attention": "poslab.library.parts",
    "gpt": "poslab.library.parts",
    "compose": "poslab.library.composing",
    "train": "poslab.library.training",
    "RunDirectory": "poslab.library.run_directory",
    "evaluate": "poslab.library.evaluation",
    "load": "poslab.library.weights",
    "export": "poslab.library.weights",
    "read": "poslab.library.studies",
    "Study": "poslab.library.studies",
    "estimate": "poslab.analysis.statistics",
    "paired": "poslab.analysis.statistics",
    "Estimate": "poslab.analysis.statistics",
    "Difference": "poslab.analysis.statistics",
    "Ratio": "poslab.analysis.statistics",
    "number": "poslab.report.formatting",
    "interval": "poslab.report.formatting",
    "quantity": "poslab.report.formatting",
    "CausalAttention": "poslab.library.parts",
    "Scheme": "poslab.model.positions",
    "Mixer": "poslab.model.attention",
    "Objective": "poslab.objectives",
    "Measurement": "poslab.measures",
    "GPT": "poslab.model.gpt",
    "ConfigError": "poslab.config.schema",
    "ReportError": "poslab.record.reader",
}

__all__ = list(_MODULES)


if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            value = version("poslab")
        elif name in _MODULES:
            value = getattr(importlib.import_module(_MODULES[name]), name)
        else:
            raise AttributeError(f"module 'poslab' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})
