"""Why a run failed, in the words of its record."""

import torch

from poslab.config.schema import ConfigError
from poslab.config.text import without_secrets
from poslab.study.launch.machine import lacks_memory


def out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or lacks_memory(error)


def failure_reason(error: Exception, trained: bool) -> str:
    """Return the error in one line; where memory ran out in training or after it, with what to change."""
    message = without_secrets((str(error).splitlines() or ["no message"])[0])
    if out_of_memory(error):
        of_training = "a smaller trainer.batch_size or a larger trainer.accumulate"
        of_evaluation = "a shorter evaluate.longest, fewer evaluate.segments or attention=flash"
        return f"out of memory ({message}): choose {of_evaluation if trained else of_training}"
    return message if isinstance(error, ConfigError) else f"{type(error).__name__}: {message}"
