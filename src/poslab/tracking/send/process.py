"""`python -m poslab.tracking.send.process` logs one run to W&B, by the lines of its standard input.

Each line is a JSON object. The first one opens the run (`opening`), each further one has a `row` of its
curve, and the last one has the arguments to `finish` it. The answers are lines too: `place` once the run is
open, `stop` when somebody stops it in W&B, `complete` at the end, or `failed` with the reason. Where the
input ends before the run is finished, the run's own process has died, and this one ends at once.
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
    """Returns the exit status once the run is finished or W&B has failed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a scheduler sends them to all; the run handles them
        signal.signal(number, signal.SIG_IGN)
    os.environ.pop("WANDB_SERVICE", None)  # a service of other runs would not end with this process
    # W&B would import it, for a second of the core that the run trains on, to see that a number is no table.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    answers = os.dup(1)
    os.dup2(2, 1)  # W&B's own output must not be read as an answer

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
    done.set()  # before the answer, after which the run's process may end
    answer(**last)
    return int("failed" in last)


def _track(lines: Lines, answer: Callable[..., None]) -> None:
    from poslab.tracking.send.run import TrackedRun  # here, since wandb takes a second and lines must be read

    first = dict(lines.get())
    run = TrackedRun(
        LoggerOptions(**first.pop("options")),
        Card(**first.pop("card")),
        Path(first.pop("directory")),
        **first,
        stop=lambda who: answer(stop=who),
        training=os.getppid(),
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
    """Reads without sys.stdin, whose lock a waiting thread would hold when Python ends."""
    rest = b""
    while part := os.read(descriptor, 1 << 20):
        *whole, rest = (rest + part).split(b"\n")
        yield from whole


if __name__ == "__main__":
    sys.exit(main())
