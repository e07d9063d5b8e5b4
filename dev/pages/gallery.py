"""Write docs/gallery.md: a picture, a sentence and a command for each archived study."""

import csv
from pathlib import Path

from poslab.record.archive import archived_studies

HEAD = """\
# Gallery of studies

Each study with archived records: its question, its first figure, the first sentence of its report, and the
command that writes the report again from the records in git, without training. See also [what these studies
do not show](limits.md#what-the-archived-studies-do-not-show). `python -m dev.pages` writes this page.
"""


def gallery(reports: Path) -> str:
    """Return docs/gallery.md."""
    lines = [HEAD]
    for study in archived_studies(reports):
        with (reports / study / "facts.csv").open(newline="", encoding="utf-8") as file:
            rows = [(row["key"], row["value"]) for row in csv.DictReader(file)]

        def every(key: str, rows: list[tuple[str, str]] = rows) -> list[str]:
            return [value for name, value in rows if name == key]

        parameters = _range([f"{int(value) / 1e6:.2f}" for value in every("parameters")])
        ratio = _range([f"{float(value):.1f}" for value in every("tokens_per_parameter")])
        trained = " and ".join(f"`{command}`" for command in every("command"))
        folder = f"../reports/{study}"
        lines += [
            f"## {every('title')[0]}",
            "",
            f"[![The first figure of {study}]({folder}/answer.png)]({folder}/report.md)",
            "",
            every("answer")[0],
            "",
            f"{every('compared')[0]}; {parameters} M parameters, {ratio} training tokens per parameter, "
            f"trained by {trained}.",
            "",
            "```",
            every("report_command")[0],
            "```",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _range(values: list[str]) -> str:
    return " to ".join(dict.fromkeys((min(values, key=float), max(values, key=float))))
