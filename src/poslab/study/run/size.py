"""The numbers of a run's settings that decide what it takes, of memory, disk and time."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.request import flat_settings
from poslab.config.schema import RunConfig, is_tokenizer_file
from poslab.data import tokenizer_file


@dataclass(frozen=True)
class Size:
    """The numbers that decide what a run takes, as its settings have them."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    scheme_parameters: int
    context_length: int
    longest: int  # a multiple of L
    max_length: int | None  # tokens that the scheme is defined for
    batch_size: int
    accumulate: int
    devices: int  # processes of the run on one machine
    nodes: int
    max_steps: int
    validations: int
    validation_windows: int
    segments: int
    samples: int  # of the probe; 0 without one
    depths: int
    tasks: int
    softmax: bool  # whether attention forms all of its weights
    number: int  # bytes of an activation
    compiled: bool
    cuda: bool
    largest_option: str  # the largest number of the scheme's and the attention's own: "pos.hidden than 1e+09"

    @property
    def parameters(self) -> int:
        """Weights of the model, those of its positional scheme among them."""
        block = 12 * self.width**2 + 13 * self.width
        shared = self.vocabulary * self.width + self.layers * block + 2 * self.width
        return shared + self.scheme_parameters


def size_of(config: RunConfig, max_length: int | None = None, scheme_parameters: int = 0) -> Size:
    """The sizes of a resolved configuration, whose scheme has this limit and so many parameters."""
    trainer, evaluate, probe = config.trainer, config.evaluate, config.probe
    vocabulary = config.data.get("vocabulary")
    return Size(
        width=config.model.width,
        layers=config.model.layers,
        heads=config.model.heads,
        vocabulary=_entries(vocabulary),
        scheme_parameters=scheme_parameters,
        context_length=config.context_length,
        longest=int(evaluate.longest),
        max_length=max_length,
        batch_size=trainer.batch_size,
        accumulate=trainer.accumulate,
        devices=trainer.devices,
        nodes=trainer.nodes,
        max_steps=trainer.max_steps,
        validations=evaluate.validations,
        validation_windows=evaluate.validation_windows,
        segments=evaluate.segments,
        samples=probe.samples or 0,
        depths=probe.depths or 0,
        tasks=len(probe.tasks),
        softmax=config.attention.get("kind") == "softmax",
        number=2 if trainer.precision == "bfloat16" else 4,
        compiled=trainer.compile is True,
        cuda=trainer.accelerator == "cuda",
        largest_option=largest_number({"pos": config.pos, "attention": config.attention}),
    )


def largest_number(sections: Mapping[str, Any]) -> str:
    """The largest number among settings and its value, as in "pos.hidden than 1e+09"."""
    numbers = {key: each for key, each in flat_settings(sections).items() if isinstance(each, int | float)}
    largest = max(numbers, key=lambda key: numbers[key], default=None)
    return f"{largest} than {numbers[largest]:g}" if largest else "scheme"


def _entries(vocabulary: Any) -> int:
    """The tokens of a vocabulary. Raises ConfigError where it is a file that is no tokenizer."""
    if is_tokenizer_file(vocabulary):
        return tokenizer_file.entries(Path(vocabulary))
    return vocabulary if isinstance(vocabulary, int) else 256
