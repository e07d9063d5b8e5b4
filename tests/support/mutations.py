"""Changes of a file that a command reads: a bit, an end, another's file, one more, another format."""

import hashlib
import io
import lzma
import random
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from poslab.record.kept import KEPT
from poslab.record.seal import DamagedError, sealed, unsealed
from poslab.training.checkpoints import from_bytes, to_bytes
from support import world
from support.world import STUDIES, Reader

GOLDEN = Path(__file__).parents[1] / "record" / "golden"
KINDS = ("bit", "end", "swap", "extra", "older", "newer")


@dataclass(frozen=True)
class Target:
    """A file of the world, the file of the same kind of another run, and the commands that read it."""

    path: Path  # from the world's root
    other: Path
    readers: Sequence[Reader]
    guess: bool = False  # a file that may be missing: then it is worked out anew, and nothing is said


def targets(root: Path) -> list[Target]:
    """Every file that a command reads, in the world at `root`."""
    with world.cache_of(root):
        pairs = [[world.job(root, seed, study) for study in STUDIES] for seed in (0, 1)]
    (done, other_done), (stopped, other_stopped) = [[each.directory for each in pair] for pair in pairs]
    files: list[tuple[Path, Path, Sequence[Reader], bool]] = []
    for study, other in [(done.parent, other_done.parent)]:
        files.append((study / "study.json", other / "study.json", (world.report, world.status), False))
    of_manifest = (world.report, world.status, world.train_again, world.model)
    files.append((done / "manifest.json", other_done / "manifest.json", of_manifest, False))
    for path in sorted(done.glob("*.csv")):
        files.append((path, _like(path, other_done), (world.report, world.train_again), False))
    weights = "checkpoint.pt"
    files.append((done / weights, other_done / weights, (world.model, world.train_again), False))
    of_stopped = (world.report, world.status, world.go_on)
    files.append((stopped / "manifest.json", other_stopped / "manifest.json", of_stopped, False))
    states, others = (sorted(each.glob("checkpoints/*.pt")) for each in (stopped, other_stopped))
    files += [(states[-1], others[-1], (world.go_on,), False)]
    progress = "progress.json"
    files.append((stopped / progress, other_stopped / progress, (world.progress, world.status), True))
    requests = [world.request_file(job) for job in pairs[0]]
    files.append((requests[0], requests[1], (world.work,), False))
    reports = root / "reports"
    kept = [reports / study / KEPT for study in STUDIES]
    files.append((kept[0], kept[1], (world.report_kept,), False))
    mine, others_own = (
        next((root / "evaluations").glob(f"{directory.name}-*")) for directory in (done, other_done)
    )
    for path in (mine / "manifest.json", *sorted(mine.glob("*.csv"))):
        files.append((path, _like(path, others_own), (world.evaluate,), False))
    text, other_text = (job.corpus.directory for job in pairs[0])
    for path in sorted(text.iterdir()):
        files.append((path, other_text / path.name, (world.prepare,), False))
    planning = sorted((root / "cache" / "planning").glob("*.json"))
    for number, path in enumerate(planning):
        files.append((path, planning[number - 1], (world.remembered,), True))
    return [
        Target(path.relative_to(root), other.relative_to(root), readers, guess)
        for path, other, readers, guess in files
    ]


def _like(path: Path, folder: Path) -> Path:
    """The file of that name in another run's folder, or any other table where that has none."""
    return folder / path.name if (folder / path.name).exists() else folder / "position.csv"


def mutate(target: Target, kind: str, root: Path, chance: random.Random) -> Path | None:
    """The file that is now another in the world at `root`; None where such a change leaves it as it is."""
    path, other = root / target.path, root / target.other
    before = path.read_bytes()
    if kind == "extra":
        _add(path, other)
        return path
    after = _changed(path, before, other.read_bytes(), kind, chance)
    if after is None or after == before:
        return None
    if path.parent.name == "checkpoints" and kind in ("swap", "older", "newer"):  # its name is its checksum
        path.unlink()
        path = path.with_name(f"{path.name[:8]}-{hashlib.sha256(after).hexdigest()[:16]}.pt")
    path.write_bytes(after)
    return path


def _changed(path: Path, before: bytes, other: bytes, kind: str, chance: random.Random) -> bytes | None:
    if kind == "bit":
        after = bytearray(before)
        after[chance.randrange(len(after))] ^= 1 << chance.randrange(8)
        return bytes(after)
    if kind == "end":
        return before[: chance.randrange(len(before))]
    if kind == "swap":
        return other
    return _of_another_format(path, before, -1 if kind == "older" else 1)


def _of_another_format(path: Path, before: bytes, step: int) -> bytes | None:
    """The file as an older version has written it, or as a newer one may; None where none would say so."""
    if path.suffix == ".pt":
        content = from_bytes(before)
        return to_bytes({**content, "format": content["format"] + step})
    if path.name == KEPT:
        return _packed_anew(before, lambda name, data: _of_another_format(Path(name), data, step) or data)
    if path.suffix == ".csv":
        header, _, rows = before.partition(b"\n")
        return header.rpartition(b",")[0] + b"\n" + rows if step < 0 else header + b",new\n" + rows
    try:
        facts = unsealed(before, path)
    except DamagedError:
        return None
    if step < 0:
        return sealed({**facts, "format": 2}).encode()
    return sealed({**facts, "format": 9}).encode() if "format" in facts else None


def _add(path: Path, other: Path) -> None:
    """One more file, called as one that a command might look for."""
    if path.name == KEPT:
        path.write_bytes(_packed_anew(path.read_bytes(), lambda name, data: data, "checkpoint.pt"))
    elif path.parent.name == "checkpoints":
        number = f"{int(path.name[:8]) + 1:08d}"
        path.with_name(number + other.name[8:]).write_bytes(other.read_bytes())
    elif path.suffix == ".csv":
        for name in ("probe.csv", "scheme_bias.csv", "rescaled.csv", "rescaled_position.csv"):
            if not path.with_name(name).exists():
                path.with_name(name).write_bytes(other.read_bytes())
        path.with_name(f".{path.name}.abcd1234").write_bytes(other.read_bytes())
        path.with_name("more.csv").write_bytes(other.read_bytes())
    else:
        for name in (f"{path.name}.bak", f".{path.name}.abcd1234", f"more-{path.name}"):
            path.with_name(name).write_bytes(other.read_bytes())


def _packed_anew(packed: bytes, change: Callable[[str, bytes], bytes], more: str | None = None) -> bytes:
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as old,
        tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for entry in old.getmembers():
            file = old.extractfile(entry)
            assert file is not None
            content = change(entry.name, file.read())
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
        if more is not None:
            new.addfile(tarfile.TarInfo(f"{Path(entry.name).parent}/{more}"), io.BytesIO())
    return lzma.compress(made.getvalue())


def verdict(target: Target, path: Path, sound: world.Seen, now: world.Seen) -> str:
    """What became of a change of the file `path`: named, without effect, or silent, which it must not be."""
    if "Traceback" in now.said:
        return "traceback"
    if any(value != sound.figures.get(key) for key, value in now.figures.items()):
        return "silent"
    # Of a manifest its folder's name says which it is, of kept records those of the runs that are lost.
    lost = sound.figures.keys() - now.figures.keys()
    runs = {path.parent.name} if path.name == "manifest.json" else lost if path.name == KEPT else set()
    if any(name in now.said for name in {path.name, target.other.name, *runs}):
        return "named"
    return "silent" if lost and not target.guess else "without effect"


def may_be_without_effect(target: Target, kind: str) -> bool:
    """A file that nothing reads, a guess, and a list of an older version, which is read."""
    return kind == "extra" or target.guess or (kind == "older" and target.path.name in ("study.json", KEPT))
