"""Count phrases that plain English avoids, and pronouns used as names in the code.

    python dev/words.py [FOLDER ...]

Phrases are counted in the Python files and Markdown pages of the folders (default: src, docs and README.md),
names in the Python files only. Files are listed by their counts, the highest first.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("src", "docs", "README.md")

PHRASES = {  # keys say what to write instead
    "resume, continue": r"\b(go|goes|going|went|gone) on\b",
    "run, train, finish, write": r"\b(is|are|was|were|be|been|being|has|have|not) made\b"
    r"|\bmade (again|already|by)\b",
    "archived, stored, saved": r"\bkept\b",
    "prints, reports, names": r"\b(told|tells|is said|are said)\b",
    "only, by itself": r"\balone\b",
    "per token": r"\b(nats|bits|bytes|tokens|seconds|operations|rows?|lines?) an? "
    r"(token|byte|run|seed|step|arm|node|figure|second)\b",
    "a noun, or with": r"\bwhose\b",
    "a noun": r"\bwhat (it|they|this|that) (has|have|is|are|says?)\b",
    "running, active": r"\bunder way\b",
    "still, anyway": r"\ball the same\b",
}
PRONOUNS = re.compile(
    r"_*(each|one|others?|shown|both|mine|theirs|own|ours|it|this|that|those|these|such|what|which|everything"
    r"|anything|nothing|something|another|whose|here|there|then|told|made|some|few|its)"
)


def files(places: list[str], *suffixes: str) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        paths = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in paths if file.suffix in suffixes)


def phrases(text: str) -> Counter[str]:
    plain = re.sub(r"\s+", " ", re.sub(r"\n\s*#", "\n", text))
    return Counter({name: len(re.findall(pattern, plain, re.I)) for name, pattern in PHRASES.items()})


def pronouns(text: str) -> Counter[str]:
    """Count the pronouns among the names that a source binds: variables, arguments, functions, classes."""
    counts: Counter[str] = Counter()
    for node in ast.walk(ast.parse(text)):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        if PRONOUNS.fullmatch(name):
            counts[name] += 1
    return counts


def main(places: list[str]) -> None:
    counts = [
        ("phrases", {path: phrases(path.read_text()) for path in files(places, ".py", ".md")}),
        ("pronouns as names", {path: pronouns(path.read_text()) for path in files(places, ".py")}),
    ]
    for title, by_file in counts:
        total = sum(by_file.values(), Counter())
        print(f"{title}: {total.total()}")
        print("  " + ", ".join(f"{name} {count}" for name, count in total.most_common()))
        for path, counts_of_file in sorted(by_file.items(), key=lambda item: -item[1].total())[:10]:
            if counts_of_file:
                print(f"  {counts_of_file.total():4} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(PLACES))
