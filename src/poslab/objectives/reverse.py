"""Repeat letters in reverse order."""

from poslab.objectives.tasks import LETTERS, Draw, Sample, Task, asked


class Reverse(Task):
    predicts = "letters in reverse"

    def sample(self, size: int, draw: Draw) -> Sample:
        letters = draw.choices(LETTERS, size)
        return asked(letters + b"=", letters[::-1])
