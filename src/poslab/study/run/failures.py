"""The reason of a failed run, as its record states it."""

import torch

from poslab.config.schema import ConfigError
from poslab.config.text import without_secrets
from poslab.study.launch.machine import lacks_memory


def out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or lacks_memory(error)


def failure_reason(error: Exception, trained: bool) -> str:
    """Return the error in one line. If memory ran out, in training or later, name the settings to change."""
    message = without_secrets((str(error).splitlines() or ["no message"])[0])
    if out_of_memory(error):
        for_training = "a smaller trainer.batch_size or a larger trainer.accumulate"
        for_evaluation = "a smaller evaluate.longest, fewer evaluate.segments or attention=flash"
        return f"out of memory ({message}): choose {for_evaluation if trained else for_training}"
    return message if isinstance(error, ConfigError) else f"{type(error).__name__}: {message}"
