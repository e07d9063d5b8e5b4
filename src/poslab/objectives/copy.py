"""Repeat letters in their order."""

import string

from poslab.objectives.tasks import Draw, Sample, Task, asked

LETTERS = string.ascii_lowercase.encode()


class Copy(Task):
    predicts = "a copy of letters"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.some(LETTERS, size)
        return asked(letters + b"=", letters)
