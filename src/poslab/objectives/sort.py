"""Repeat letters in alphabetical order."""

from poslab.objectives.tasks import LETTERS, Draw, Sample, Task, asked


class Sort(Task):
    predicts = "letters in alphabetical order"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.choices(LETTERS, size)
        return asked(letters + b"=", bytes(sorted(letters)))
