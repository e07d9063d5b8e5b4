"""Repeat letters from the last to the first."""

import string

from poslab.objectives.tasks import Draw, Sample, Task, asked

LETTERS = string.ascii_lowercase.encode()


class Reverse(Task):
    predicts = "letters in reverse"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.some(LETTERS, size)
        return asked(letters + b"=", letters[::-1])
