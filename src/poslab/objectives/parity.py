"""Tell whether a bit string has an even or an odd number of ones (Hahn 2020, arXiv 1906.06755)."""

from poslab.objectives.tasks import Draw, Sample, Task, asked


class Parity(Task):
    predicts = "the parity of bits"

    def sample(self, size: int, draw: Draw) -> Sample:
        bits = draw.choices(b"01", size)
        return asked(bits + b"=", b"%d" % (bits.count(b"1") % 2))
