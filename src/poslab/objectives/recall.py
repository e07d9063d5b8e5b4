"""Recall the values of several keys (multi-query associative recall; Arora et al. 2023, arXiv 2312.04927).

A sample of size n states n pairs of a key and its value, then asks for the value of every key once, in
random order: aXbYcZ|bYaXcZ. Only the values after the bar are scored.
"""

import string

from pydantic import Field

from poslab.objectives.tasks import Draw, Sample, Task, TaskOptions

# The keys of a sample are all different, so a sample has at most as many pairs as there are keys.
KEYS = string.ascii_lowercase.encode() + string.digits.encode() + b"!#$%&()*+,-./:;<=>?@[]^_{}~"
VALUES = string.ascii_uppercase.encode()


class RecallOptions(TaskOptions):
    tested: int = Field(ge=1, le=len(KEYS), description="the largest tested number of pairs")


class Recall(Task):
    options_class = RecallOptions
    predicts = "the values of keys"

    def sample(self, size: int, draw: Draw) -> Sample:
        keys = draw.order(KEYS)[:size]
        value = dict(zip(keys, draw.choices(VALUES, size), strict=True))
        stated = bytes(byte for key in keys for byte in (key, value[key])) + b"|"
        asked = bytes(byte for key in draw.order(keys) for byte in (key, value[key]))
        return Sample(stated + asked, range(len(stated) + 1, len(stated + asked), 2))
