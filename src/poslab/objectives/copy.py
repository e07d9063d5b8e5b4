"""Repeat letters in the same order."""

from poslab.objectives.tasks import LETTERS, Draw, Sample, Task, asked


class Copy(Task):
    predicts = "a copy of letters"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.choices(LETTERS, size)
        return asked(letters + b"=", letters)
