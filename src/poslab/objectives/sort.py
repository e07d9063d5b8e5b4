"""Repeat letters in alphabetical order."""

import string

from poslab.objectives.tasks import Draw, Sample, Task, asked

LETTERS = string.ascii_lowercase.encode()


class Sort(Task):
    predicts = "letters in alphabetical order"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.some(LETTERS, size)
        return asked(letters + b"=", bytes(sorted(letters)))
