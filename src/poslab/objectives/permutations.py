"""Follow five things through permutations: the word problem of S5 (Merrill et al. 2024, arXiv 2404.08819).

A sample of size n has n of the 120 permutations, each written as two letters. The answer is the order of the
things after all permutations, starting from 12345.
"""

import itertools
import string

from poslab.objectives.tasks import Draw, Sample, Task, asked

PERMUTATIONS = [bytes(order) for order in itertools.permutations(range(5))]
FIRST, SECOND = string.ascii_uppercase[:10].encode(), string.ascii_lowercase[:12].encode()


class Permutations(Task):
    predicts = "the order of five things after permutations"

    def sample(self, size: int, draw: Draw) -> Sample:
        state, moves = bytes(range(5)), b""
        for _ in range(size):
            number = draw.below(len(PERMUTATIONS))
            state = bytes(state[place] for place in PERMUTATIONS[number])
            moves += bytes([FIRST[number // len(SECOND)], SECOND[number % len(SECOND)]])
        return asked(moves + b"=", bytes(b"12345"[place] for place in state))
