"""Remember the last bit that was written (flip-flop language modelling; Liu et al. 2023, arXiv 2306.00946).

A sample has `size` instructions, each with a bit: w writes the bit, i is to be ignored, and r reads the bit
written last. The first instruction is w and the last is r. Each other one is i with a probability of 0.8, and
else w or r with equal probability. The bits after r are scored.
"""

from poslab.objectives.tasks import Draw, Sample, Task

MIDDLE = b"iiiiiiiiwr"


class FlipFlop(Task):
    predicts = "the bit that was written last"

    def sample(self, size: int, draw: Draw) -> Sample:
        instructions = b"w" + draw.choices(MIDDLE, max(0, size - 2)) + b"r"
        memory, text, answer = 0, b"", []
        for instruction in instructions:
            bit = draw.below(2)
            if instruction == ord("w"):
                memory = bit
            elif instruction == ord("r"):
                bit = memory
                answer.append(len(text) + 1)
            text += bytes([instruction]) + b"%d" % bit
        return Sample(text, answer)
