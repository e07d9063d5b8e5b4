"""The report as Markdown: the first figure, and the sentences and most tables of the page."""

import re
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from poslab.report.document import Document
from poslab.report.render.page import templates

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")


def markdown(document: Document) -> str:
    """Return the content of report.md."""
    template = _environment().get_template("report.md")
    text = template.render(document=document)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def escape_markdown(text: object) -> str:
    """Escape text for Markdown, including table cells; return Markup unchanged."""
    if isinstance(text, Markup):
        return str(text)
    marked = _SPECIAL.sub(r"\\\1", str(text).replace("\n", " "))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@cache
def _environment() -> Environment:
    environment = templates(finalize=escape_markdown, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"as_it_is": Markup, "address": _address}
    return environment


def _address(url: str) -> Markup:
    """Escape an address, so that a bracket or bar in it does not end the link or the table cell."""
    return Markup(url.replace("(", "%28").replace(")", "%29").replace("|", "%7C"))
