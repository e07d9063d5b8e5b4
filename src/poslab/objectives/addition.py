"""Add two numbers of `size` digits, written with the lowest digit first (Lee et al. 2023, arXiv 2307.03381).

With `hints`, a letter before each digit names its place (Zhou et al. 2023, arXiv 2310.16028):
a3b1+a4b2=a7b3c0 is 13 + 24 = 37. The sum is written with one digit more than its terms.
"""

import string

from pydantic import Field

from poslab.objectives.tasks import Draw, Sample, Task, TaskOptions, asked

DIGITS = string.digits.encode()
PLACES = string.ascii_letters.encode()


class AdditionOptions(TaskOptions):
    hints: bool = Field(description="whether a letter before each digit names its place")
    tested: int = Field(ge=1, lt=len(PLACES), description="the largest tested size")


class Addition(Task):
    options_class = AdditionOptions
    options: AdditionOptions
    predicts = "the digits of a sum"

    def sample(self, size: int, draw: Draw) -> Sample:
        first, second = draw.choices(DIGITS, size), draw.choices(DIGITS, size)
        total = int(first[::-1]) + int(second[::-1])
        result = str(total).zfill(size + 1).encode()[::-1]
        first, second, result = (self._written(number) for number in (first, second, result))
        return asked(first + b"+" + second + b"=", result)

    def _written(self, digits: bytes) -> bytes:
        if not self.options.hints:
            return digits
        return b"".join(PLACES[place : place + 1] + bytes([digit]) for place, digit in enumerate(digits))
