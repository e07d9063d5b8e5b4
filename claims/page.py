"""The ledger as a web page that fetches nothing, as Markdown and as CSV."""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from claims.contract import FALSE, NOTES, TRUE, Claim, Judgement, Kind, Verdict
from claims.studies import StudyCommand

COMMAND = "python -m claims"
TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = ("number", "part", "kind", "statement", "verdict", "value", "source", "command")
TITLE = "Claims about positional encodings, and what holds"
# A link to a claim opens it.
SCRIPT = """\
function show() {
  const claim = document.getElementById(location.hash.slice(1));
  if (claim instanceof HTMLDetailsElement) { claim.open = true; claim.scrollIntoView(); }
}
addEventListener("hashchange", show);
show();
"""
# The numbers of the most common claims, in the order in which their questions are shown.
BELIEVED = (28, 12, 11, 6, 30, 29, 37, 35, 19, 25)


@dataclass(frozen=True)
class Entry:
    """A claim with its judgement."""

    claim: Claim
    judgement: Judgement

    @property
    def anchor(self) -> str:
        return f"claim-{self.claim.number}"

    @property
    def asked(self) -> Judgement:
        """The judgement that answers the question: that of one part, or of the whole claim."""
        return self.judgement.part(self.claim.asked)

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands behind its value: this page, the report of the study used, and missing studies."""
        judgement, exact = self.judgement, self.claim.exact
        missing = tuple(study.command for study in judgement.missing)
        read = () if judgement.study is None else (f"python report.py study={judgement.study}",)
        computed = (COMMAND,) if exact or not (read or missing) else ()
        return (*computed, *read, *missing)


def style(verdict: Verdict) -> str:
    """Return the CSS class of a verdict."""
    if verdict in TRUE:
        return "holds"
    return "refuted" if verdict in FALSE else "open"


def of_kind(entries: Sequence[Entry], kind: Kind) -> list[Entry]:
    return [entry for entry in entries if entry.claim.kind is kind]


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """Count the findings by verdict, without verdicts that none has."""
    verdicts = [entry.judgement.verdict for entry in of_kind(entries, Kind.FINDING)]
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}


def believed(entries: Sequence[Entry]) -> list[Entry]:
    by_number = {entry.claim.number: entry for entry in entries}
    return [by_number[number] for number in BELIEVED if number in by_number]


def missing_studies(entries: Sequence[Entry]) -> list[tuple[StudyCommand, list[int]]]:
    """Return each missing study with the numbers of the claims that wait for it."""
    waiting: dict[StudyCommand, list[int]] = {}
    for entry in entries:
        for study in entry.judgement.missing:
            waiting.setdefault(study, []).append(entry.claim.number)
    return sorted(waiting.items(), key=lambda item: (-len(item[1]), item[0].study))


def parts_missing(entries: Sequence[Entry]) -> list[Entry]:
    """Return the open claims that no study can decide with the parts that poslab has."""
    return [
        entry
        for entry in entries
        if entry.judgement.verdict in (Verdict.UNDECIDED, Verdict.NOT_TESTED)
        and not (entry.judgement.missing or entry.judgement.study or entry.claim.exact)
    ]


def summary(entries: Sequence[Entry], unreadable: Mapping[str, str]) -> str:
    """Return the text for a terminal: the first questions with answers, the counts, and missing studies."""
    lines = [f"{entry.asked.answer:28} {entry.claim.question}" for entry in believed(entries)]
    found = counts(entries)
    findings = sum(found.values())
    lines += ["", f"{findings} claims: {', '.join(f'{n} {verdict}' for verdict, n in found.items())}"]
    lines += [f"and {len(entries) - findings} checks of arithmetic, printed digits and an index"]
    for study, numbers in missing_studies(entries):
        waiting = ", ".join(map(str, numbers))
        lines.append(f"missing for {waiting}: {study.command}  ({study.duration})")
    lines += [f"study={name} could not be read: {reason}" for name, reason in unreadable.items()]
    return "\n".join(lines)


def html(entries: Sequence[Entry], drawn: Mapping[str, bytes], unreadable: Mapping[str, str]) -> str:
    """Return index.html; `drawn` has the SVG of each figure by name."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    environment.filters.update(linked=_linked, style=style)
    return environment.get_template("claims.html").render(
        _facts(entries, unreadable),
        pictures={name: f"data:image/svg+xml;base64,{_encoded(svg)}" for name, svg in drawn.items()},
        style=Markup((TEMPLATES / "claims.css").read_text(encoding="utf-8")),
        script=Markup(SCRIPT),
        policy=f"default-src 'none'; img-src data:; script-src 'sha256-{script}'; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    )


def markdown(entries: Sequence[Entry], unreadable: Mapping[str, str]) -> str:
    """Return claims.md."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=_escape_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("claims.md").render(_facts(entries, unreadable), as_it_is=Markup)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def table(entries: Sequence[Entry]) -> str:
    """Return claims.csv: a row for each claim, followed by one for each of its parts."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in entries:
        claim, judgement = entry.claim, entry.judgement
        last = ("; ".join(claim.sources), "; ".join(entry.commands))
        first, kind = claim.number, claim.kind.value
        writer.writerow((first, "", kind, claim.statement, judgement.verdict.value, judgement.value, *last))
        for letter, part in judgement.parts.items():
            writer.writerow((first, letter, kind, part.statement, part.verdict.value, part.numbers, *last))
    return file.getvalue()


def _facts(entries: Sequence[Entry], unreadable: Mapping[str, str]) -> dict[str, object]:
    return {
        "title": TITLE,
        "entries": entries,
        "findings": of_kind(entries, Kind.FINDING),
        "checks": of_kind(entries, Kind.CHECK),
        "notes": NOTES,
        "counts": counts(entries),
        "believed": believed(entries),
        "missing": missing_studies(entries),
        "unreadable": unreadable,
        "command": COMMAND,
        "parts": parts_missing(entries),
    }


def _linked(text: str) -> Markup:
    """Escape the text, and link each "claim N" to that claim."""
    return Markup(re.sub(r"\bclaim (\d+)\b", r'<a href="#claim-\1">claim \1</a>', str(escape(text))))


def _encoded(svg: bytes) -> str:
    return base64.b64encode(svg).decode()


def _escape_markdown(text: object) -> str:
    """Escape text so that Markdown shows it literally, also in a table cell; leave Markup unchanged."""
    if isinstance(text, Markup):
        return str(text)
    marked = re.sub(r"([\\`*_{}\[\]#|~$])", r"\\\1", str(text).replace("\n", " "))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
