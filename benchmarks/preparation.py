"""Measure preparing a text: python benchmarks/preparation.py [bytes=2000000000] [text=FILE] [rounds=3]

Documents of 10 KB are cut repeatedly from FILE, or from Python's standard library, into a temporary folder,
and prepared as bytes and with a BPE of 32,000 entries, each in a separate process. The program prints the
peak memory of that process and its children (sampled, Linux only), with the values of `resource` for each,
and the speed as a ratio to `tokenizers`' own `encode_batch` on the same cores. The library is timed right
afterwards on a part of the text, and again in turns with preparing that part with the trained tokenizer
(including reading, checking, hashing and writing). `resource` includes the memory that a process had before
it became Python, so a long FILE shows there. Last is the time for 10 billion tokens at the overall speed.
"""

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

DOCUMENT, PART = 10_000, 64_000_000  # bytes of a document, and of the part that is encoded in turns
ENTRIES = 32_000
GOAL = 10**10  # tokens


def write_documents(folder: Path, text: bytes, size: int) -> None:
    """Write different documents with `size` bytes in total, ten thousand per file."""
    folder.mkdir()
    count = size // DOCUMENT
    for first in range(0, count, 10_000):
        with (folder / f"{first:09}.jsonl").open("w") as file:
            for number in range(first, min(first + 10_000, count)):
                begin = number * 7919 % max(len(text) - DOCUMENT, 1)
                document = text[begin : begin + DOCUMENT - 10].decode(errors="ignore")
                file.write(json.dumps({"text": f"{number:08}\n{document}\n"}) + "\n")


def measured(kind: str, folder: Path, vocabulary: str) -> dict[str, Any]:
    """Return the result of `prepare` or `encode` in a separate process, with the memory it used."""
    before = os.times()
    command = [sys.executable, __file__, kind, str(folder), vocabulary]
    with tempfile.TemporaryDirectory(dir=folder.parent) as cache:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "POSLAB_CACHE": cache}
        )
        peaks = [0]
        sampling = threading.Thread(target=lambda: peaks.extend(resident(process)))
        sampling.start()
        output, _ = process.communicate()
        sampling.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return {**json.loads(output), "peak": max(peaks), "processor": processor}


def resident(process: subprocess.Popen[str]) -> Iterator[int]:
    """Yield the resident bytes of a process and its children, ten times a second."""
    while process.poll() is None:
        total = 0
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for number in (process.pid, *children):
                total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * resource.getpagesize()
        yield total
        time.sleep(0.1)


def prepare(folder: Path, vocabulary: str) -> dict[str, Any]:
    """Prepare the documents, the first time and again, and return the times and memory."""
    from poslab.data import build, cache
    from poslab.data.tokens import train_bpe

    seconds = {"training": 0.0}

    def timed(*arguments: Any) -> str:
        begun = time.perf_counter()
        content = train_bpe(*arguments)
        seconds["training"] += time.perf_counter() - begun
        (folder.parent / "tokenizer.json").write_text(content)
        return content

    vars(build)["train_bpe"] = timed
    entries = int(vocabulary) if vocabulary.isdigit() else vocabulary
    data = {"source": "text", "path": str(folder), "vocabulary": entries}
    for name in ("whole", "again"):
        begun = time.perf_counter()
        corpus = cache.prepare(data)
        seconds[name] = time.perf_counter() - begun
    if vocabulary.isdigit() and not seconds["training"]:
        (folder.parent / "tokenizer.json").write_bytes(corpus.tokenizer())
    own, largest_child = (
        resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    tokens = len(corpus.train) + len(corpus.validation)
    return {**seconds, "tokens": tokens, "own": own, "largest child": largest_child}


def encode(folder: Path, tokenizer_file: str) -> dict[str, Any]:
    """Encode the documents with the library only, in batches of a thousand; count only its own time."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    seconds = 0.0
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as file:
            while lines := list(islice(file, 1000)):
                texts = [json.loads(line)["text"] for line in lines]
                begun = time.perf_counter()
                tokenizer.encode_batch(texts)
                seconds += time.perf_counter() - begun
    return {"whole": seconds}


def stdlib() -> bytes:
    """Return the text of Python's standard library."""
    from poslab.data import sources

    return b"".join(text[:] for text in sources.find({"source": "stdlib", "vocabulary": "bytes"}).read())


def memory(found: dict[str, Any]) -> str:
    """Return the memory used, as text."""
    peak, process, child = (found[name] / 2**20 for name in ("peak", "own", "largest child"))
    return f"peak {peak:,.0f} MiB (ru_maxrss {process:,.0f}, largest child {child:,.0f})"


def main(arguments: Sequence[str]) -> None:
    options = {"bytes": "2000000000", "text": "", "rounds": "3"}
    options |= dict(argument.partition("=")[::2] for argument in arguments)
    if options.keys() != {"bytes", "text", "rounds"}:
        raise SystemExit(__doc__)
    size = int(options["bytes"])
    text = Path(options["text"]).read_bytes() if options["text"] else stdlib()
    with tempfile.TemporaryDirectory() as name:
        folder, part, tokenizer = Path(name, "documents"), Path(name, "part"), f"{name}/tokenizer.json"
        write_documents(folder, text, size)
        write_documents(part, text, min(PART, size))
        time.sleep(5)  # the state of newer files is not trusted
        as_bytes = measured("prepare", folder, "bytes")
        as_bpe = measured("prepare", folder, str(ENTRIES))
        encoding = measured("encode", part, tokenizer)["whole"] / min(PART, size)  # seconds per byte
        print(f"{size:,} bytes, {size // DOCUMENT:,} documents, {len(os.sched_getaffinity(0))} cores")
        for title, results in (("bytes", as_bytes), ("BPE of 32,000", as_bpe)):
            seconds = (results["whole"] - results["training"]) / size
            hours = (results["whole"] - results["training"]) / results["tokens"] * GOAL / 3600
            print(
                f"{title}: {memory(results)}; {encoding / seconds:.2f} of encode_batch's speed without "
                f"training the BPE, {encoding / (results['whole'] / size):.2f} with it; 10 billion tokens in "
                f"{hours:.1f} h; read from the cache in {results['again']:.2f} s",
                flush=True,
            )
        ratios: dict[str, list[float]] = {"whole": [], "processor": []}
        for number in range(int(options["rounds"])):
            kinds = ("prepare", "encode") if number % 2 else ("encode", "prepare")
            turn = {kind: measured(kind, part, tokenizer) for kind in kinds}
            for clock, values in ratios.items():
                values.append(turn["encode"][clock] / turn["prepare"][clock])
            print(f"round {number + 1}: {ratios['whole'][-1]:.2f}, {ratios['processor'][-1]:.2f}", flush=True)
    for clock, name in (
        ("whole", "speed"),
        ("processor", "speed by processor time"),
    ):
        print(f"in turns, the median: {statistics.median(ratios[clock]):.2f} of encode_batch's {name}")


if __name__ == "__main__":
    kinds = {"prepare": prepare, "encode": encode}
    if sys.argv[1:2] and sys.argv[1] in kinds:
        print(json.dumps(kinds[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])))
    else:
        main(sys.argv[1:])
