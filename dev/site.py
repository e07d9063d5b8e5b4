"""Build the documentation as a site: `uv run --with zensical python -m dev.site`, in the project's folder.

Zensical turns the pages of docs/, the README and all files that they link to into site/, with search. The
site has the layout of the repository, so links need no change; a linked folder becomes a list of its files,
and the notebook a page. llms.txt lists the pages for language models, and each page's Markdown is beside it.
Every link is then checked, and a dead one ends the command with status 1.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"
NOTEBOOK = "docs/library.ipynb"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)

# Pages of docs/ in the order of the menu; the cards follow. Other pages are found by links and search.
MENU = {
    "Use": [
        "README",
        "installing",
        "studies",
        "settings",
        "measuring",
        "report",
        "wandb",
        "trackers",
        "findings",
        "limits",
    ],
    "Library": ["library", "programs", "api", "extending"],
    "Schemes": ["schemes/index", "schemes", "zoo", "gallery", "claims"],
}
SETTINGS = """\
[project]
site_name = "poslab"
site_description = "What a positional encoding does to a small GPT, measured so that it can be believed"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
extra_javascript = ["sort.js"]
extra_css = ["tables.css"]
nav = {nav}

[project.theme]
font = false
features = ["navigation.tabs", "navigation.top", "search.highlight", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
"""
TABLES = """\
.md-grid { max-width: 72rem; }
.md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 0; padding: .4em .8em; }
.md-typeset table:not([class]) th { cursor: pointer; }
.md-typeset table:not([class]) code { word-break: normal; }
"""
SORT = """\
// A click on a column head sorts the table by the column, numerically if cells begin with a number.
document.addEventListener("click", (event) => {
  const head = event.target.closest("th"), table = head && head.closest("table")
  if (!table || !table.tBodies.length) return
  const down = head.dataset.order !== "up", rows = [...table.tBodies[0].rows]
  const value = (row) => row.cells[head.cellIndex].textContent.trim().replace("−", "-").replaceAll(",", "")
  const compare = (a, b) => {
    const [x, y] = [parseFloat(value(a)), parseFloat(value(b))]
    return isNaN(x) || isNaN(y) ? value(a).localeCompare(value(b)) : x - y
  }
  rows.sort((a, b) => (down ? compare(a, b) : compare(b, a)))
  head.dataset.order = down ? "up" : "down"
  table.tBodies[0].append(...rows)
})
"""


def stage(pages: Path) -> list[str]:
    """Copy the README, docs/ and all linked files into `pages`; return the paths of the Markdown pages."""
    waiting = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
    done: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        source, target = ROOT / name, pages / name
        if name in done:
            continue
        done[name] = None
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            text = _listing(source)
            target = target / "index.md"
            target.parent.mkdir(exist_ok=True)
        elif name == NOTEBOOK:
            text = notebook(source.read_text())
            target = target.with_suffix(".md")
        elif source.suffix == ".md":
            text = source.read_text()
        else:
            shutil.copy(source, target)
            continue
        base = source if source.is_dir() else source.parent
        for link in links(text):
            linked = (base / link).resolve()
            if linked.exists() and linked.is_relative_to(ROOT):
                waiting.append(str(linked.relative_to(ROOT)))
        target.write_text(_on_site(text, base))
    return sorted(str(path.relative_to(pages)) for path in pages.rglob("*.md"))


def links(text: str) -> Iterator[str]:
    """Yield the paths that a page links to, relative to its folder, except for links in code."""
    for _, address, _ in LINK.findall(CODE.sub("", text)):
        parts = urlsplit(address)
        if not parts.scheme and parts.path:
            yield unquote(parts.path)


def _on_site(text: str, base: Path) -> str:
    """Return a page in the folder `base` with links to folders and the notebook changed for the site."""

    def renamed(match: re.Match[str]) -> str:
        path, mark, anchor = match[2].partition("#")
        if "://" not in path and path and (base / path).is_dir():
            path = f"{path.rstrip('/')}/index.md"
        elif path.endswith(Path(NOTEBOOK).name):
            path = str(Path(path).with_suffix(".md"))
        return f"{match[1]}{path}{mark}{anchor}{match[3]}"

    return LINK.sub(renamed, text)


def _listing(folder: Path) -> str:
    """Return a page that lists the files of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc")
    return "\n".join([f"# {folder.relative_to(ROOT)}", "", *(f"- [{name}]({name})" for name in names)]) + "\n"


def notebook(text: str) -> str:
    """Return a notebook as Markdown, without outputs."""
    cells = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        cells.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(cells) + "\n"


def llms(pages: Path, names: list[str]) -> str:
    """Return llms.txt (llmstxt.org): the project, and each page of docs/ with title and first sentence."""
    lines = ["# poslab", "", f"> {_first_sentence((pages / 'README.md').read_text())}", "", "## Pages", ""]
    for name in names:
        if name.startswith("docs/"):
            text = (pages / name).read_text()
            title = text.partition("\n")[0].lstrip("# ").replace("`", "")
            lines.append(f"- [{title}]({name}): {_first_sentence(text)}")
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page that is not in a heading, table, list, picture or code block."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    plain = next((part for part in paragraphs if part and not re.match(r"[#|!<]|- ", part)), "")
    return re.split(r"(?<=[.:?]) (?=[A-Z])", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain))[0]


class _Page(HTMLParser):
    """The addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.addresses.append(value)
            elif value and name == "id":
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Return the links within the site that lead to a missing file or heading."""
    parsed = {path: _Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    dead = []
    for path, page in parsed.items():
        for address in dict.fromkeys(page.addresses):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            lost = parts.fragment and file in parsed and unquote(parts.fragment) not in parsed[file].anchors
            if file.is_dir():
                file /= "index.html"
            if not file.is_file() or (lost and not parts.fragment.startswith("__")):
                dead.append(f"{path.relative_to(site)}: {address}")
    return dead


def main() -> int:
    """Build site/ from scratch. Return 1 if a link in it is dead."""
    if find_spec("zensical") is None:
        sys.exit("zensical is missing: uv run --with zensical python -m dev.site")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        names = stage(work / "pages")
        menus: dict[str, list[object]] = {
            title: [f"docs/{page}.md" for page in menu] for title, menu in MENU.items()
        }
        menus["Schemes"].append(
            {"Cards": [name for name in names if re.match(r"docs/schemes/(?!index)", name)]}
        )
        nav = [{"poslab": "README.md"}, *({title: menu} for title, menu in menus.items())]
        # A JSON list is also a TOML list, except for the sign between a key and its value.
        (work / "zensical.toml").write_text(SETTINGS.replace("{nav}", json.dumps(nav, separators=(",", "="))))
        (work / "pages" / "tables.css").write_text(TABLES)
        (work / "pages" / "sort.js").write_text(SORT)
        (work / "pages" / "llms.txt").write_text(llms(work / "pages", names))
        subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=work, check=True)
        for name in names:
            shutil.copy(work / "pages" / name, work / "site" / name)
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.copytree(work / "site", SITE)
    dead = dead_links(SITE)
    print("\n".join(dead) or f"{len(names)} pages in {SITE.relative_to(ROOT)}/, no dead link")
    return 1 if dead else 0


if __name__ == "__main__":
    raise SystemExit(main())
