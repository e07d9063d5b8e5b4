"""What a run's record says of retrieval: how many of the probe's questions the trained model answered.

Only runs that trained on questions have the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from poslab.record.files import Tables, table_records, whole_number
from poslab.record.schema import PROBE
from poslab.record.seal import DamagedError


@dataclass(frozen=True)
class Retrieved:
    """What was retrieved of one task at one length and depth, or summed over several depths."""

    length: int  # tokens
    samples: int
    exact: int  # samples whose every answer token was the most likely one
    correct: int  # answer tokens that were the most likely one
    nll: float  # nats of the answer tokens, summed
    tokens: int  # answer tokens


Probe = Mapping[tuple[str, float, float], Retrieved]  # by task, multiple of L and depth


def probe(tables: Tables) -> Probe:
    """probe.csv; what was not measured, such as past the end of a scheme, has no entry."""
    answers: dict[tuple[str, float, float], Retrieved] = {}
    for row in table_records(tables, PROBE) if PROBE.file in tables else ():
        samples, tokens = whole_number(row["samples"]), whole_number(row["tokens"])
        if not samples or not tokens:
            continue  # not defined: no number
        retrieved = Retrieved(
            whole_number(row["length"]),
            samples,
            whole_number(row["exact"]),
            whole_number(row["correct"]),
            float(row["nll"]),
            tokens,
        )
        if not 0 <= retrieved.exact <= samples or not 0 <= retrieved.correct <= tokens:
            raise DamagedError(f"{PROBE.file} has more retrieved than asked for")
        key = (row["task"], float(row["multiple"]), float(row["depth"]))
        if key in answers:
            raise DamagedError(f"{PROBE.file} has a task, length and depth twice")
        answers[key] = retrieved
    return answers
