"""`python -m poslab.tracking.send.process` shows one run in W&B, as the lines of its standard input say.

The first line opens the run (`opening`), each further one has a `row` of its curve, and the last one has what
is to `finish` it. Its answers are lines too: `place` once the run is open, `stop` when somebody stops it in
W&B, `complete`, and instead of them what has `failed`. Where the input ends before the line that finishes
the run, the run's own process is gone, and this one ends at once.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from poslab.config.request import LoggerOptions
from poslab.tracking.send.background import error_line
from poslab.tracking.send.card import Card

Lines = SimpleQueue[Mapping[str, Any]]


def opening(
    options: LoggerOptions,
    card: Card,
    directory: Path,
    number: str,
    manifest: str,
    rows: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """The first line: what `TrackedRun` is opened with."""
    return {
        "options": options.model_dump(mode="json"),
        "card": asdict(card),
        "directory": str(directory),
        "number": number,
        "manifest": manifest,
        "rows": list(rows),
    }


def main() -> int:
    """Until the run is finished or W&B has failed; the exit status."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # a scheduler's are for every process; the run answers them
        signal.signal(asked, signal.SIG_IGN)
    os.environ.pop("WANDB_SERVICE", None)  # one that other runs use would not end with this process
    answers = os.dup(1)
    os.dup2(2, 1)  # what W&B prints is no answer

    def answer(**line: Any) -> None:
        os.write(answers, json.dumps(line).encode() + b"\n")

    lines: Lines = SimpleQueue()
    done = threading.Event()
    threading.Thread(target=_listen, args=(lines, done), daemon=True).start()
    try:
        _track(lines, answer)
        last: dict[str, Any] = {"complete": True}
    except Exception as error:
        last = {"failed": error_line(error)}
    done.set()  # before the answer, upon which the run's process may end
    answer(**last)
    return int("failed" in last)


def _track(lines: Lines, answer: Callable[..., None]) -> None:
    from poslab.tracking.send.run import TrackedRun  # once somebody listens: W&B takes a second

    first = dict(lines.get())
    run = TrackedRun(
        LoggerOptions(**first.pop("options")),
        Card(**first.pop("card")),
        Path(first.pop("directory")),
        **first,
        stop=lambda who: answer(stop=who),
    )
    answer(place=run.place)
    while "row" in (line := lines.get()):
        run.log(line["row"])
    run.finish(**line["finish"])


def _listen(lines: Lines, done: threading.Event) -> None:
    for line in _lines(0):
        lines.put(json.loads(line))
    if not done.is_set():
        os._exit(1)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Without sys.stdin, whose lock a thread that waits would hold when Python ends."""
    rest = b""
    while part := os.read(descriptor, 1 << 20):
        *whole, rest = (rest + part).split(b"\n")
        yield from whole


if __name__ == "__main__":
    sys.exit(main())
