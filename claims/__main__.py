"""Judge claims about positional encodings: python -m claims."""

import sys
from pathlib import Path

ABOUT = """\
Judge what notes, blogs and papers say of positional encodings, without training anything.

  python -m claims [runs=DIR] [reports=DIR]

  runs        where the records of studies are (runs/<study>/<run>/); default: runs
  reports     where the page goes (reports/claims/index.html, claims.md, claims.csv), and where studies are
              read from that are not in runs (reports/<study>/records.tar.xz); default: reports

Claims about formulas are computed with the code that trains; claims about training are read from the studies
at hand, and the command of each that is missing is listed.
"""
KEYS = ("runs", "reports")


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 with one line on stderr where the command is wrong or the page cannot be written."""
    if not {"-h", "--help", "help"}.isdisjoint(arguments):
        print(ABOUT, end="")
        return 0
    try:
        folders = _folders(arguments)
    except ValueError as error:
        return _refuse(str(error))

    # After the arguments, so that a mistake in them is answered at once.
    from claims.page import summary
    from claims.write import write

    try:
        page, entries, studies = write(folders["runs"], folders["reports"])
    except KeyboardInterrupt:
        return _refuse("stopped", 130)
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    print(summary(entries, studies.unreadable))
    print(f"page: {page}")
    return 0


def _folders(arguments: list[str]) -> dict[str, Path]:
    """Where to read and to write. Raises ValueError for what is not understood."""
    folders = {key: Path(key) for key in KEYS}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in KEYS or not value:
            raise ValueError(f"{argument!r} is not understood; the arguments are runs=DIR and reports=DIR")
        folders[key] = Path(value).expanduser()
        if not folders[key].is_dir():
            raise ValueError(f"{argument} is no directory")
    return folders


def _refuse(message: str, status: int = 2) -> int:
    print(f"claims: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
