"""Judge claims about positional encodings: python -m claims."""

import sys
from pathlib import Path

ABOUT = """\
Judge what notes, blogs and papers say about positional encodings, without training anything.

  python -m claims [runs=DIR] [reports=DIR]

  runs        where the records of studies are (runs/<study>/<run>/); default: runs
  reports     where the page is written (reports/claims/index.html, claims.md, claims.csv), and where studies
              that are not in runs are read from (reports/<study>/records.tar.xz); default: reports

Claims about formulas are computed with the code that trains. Claims about training are judged by the studies
that are available; for each missing study its command is listed.
"""
KEYS = ("runs", "reports")


def main(arguments: list[str]) -> int:
    """Return 0, or 2 with one line on stderr if the command is wrong or the page cannot be written."""
    if not {"-h", "--help", "help"}.isdisjoint(arguments):
        print(ABOUT, end="")
        return 0
    try:
        folders = _folders(arguments)
    except ValueError as error:
        return _refuse(str(error))

    # Imported after the arguments are checked, so that a mistake in them is reported at once.
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
    """Return the folders to read and to write. Raise ValueError for an unknown argument."""
    folders = {key: Path(key) for key in KEYS}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in KEYS or not value:
            raise ValueError(f"unknown argument {argument!r}; the arguments are runs=DIR and reports=DIR")
        folders[key] = Path(value).expanduser()
        if not folders[key].is_dir():
            raise ValueError(f"{argument} is not a directory")
    return folders


def _refuse(message: str, status: int = 2) -> int:
    print(f"claims: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
