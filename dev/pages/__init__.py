"""The pages of docs/ that are generated from code and archived studies: `python -m dev.pages` writes them.

They are a card with a picture for each scheme, an index of cards, the zoo of all schemes, and the gallery.
"""

from dev.pages.archived import pairwise_tests, settings_of
from dev.pages.card import ROOT, card, index, schemes
from dev.pages.gallery import gallery
from dev.pages.picture import picture, svg
from dev.pages.zoo import zoo


def pages() -> dict[str, str]:
    """Return every page and picture by its path in docs/."""
    settings = settings_of(ROOT / "reports")
    tests = pairwise_tests(settings)
    every = schemes()
    contents = {"zoo.md": zoo(every, settings, tests), "gallery.md": gallery(ROOT / "reports")}
    contents["schemes/index.md"] = index(every, settings)
    for scheme in every:
        drawn = picture(scheme.name, scheme.options, settings)
        caption = None if drawn is None else drawn.caption
        contents[f"schemes/{scheme.name}.md"] = card(scheme, caption, settings, tests)
        if drawn is not None:
            contents[f"schemes/{scheme.name}.svg"] = svg(drawn)
    return contents


def written() -> None:
    """Write every page, and remove cards of schemes that no longer exist."""
    docs = ROOT / "docs"
    (docs / "schemes").mkdir(exist_ok=True)
    contents = pages()
    for path in (docs / "schemes").glob("*"):
        if str(path.relative_to(docs)) not in contents:
            path.unlink()
    for name, text in contents.items():
        (docs / name).write_text(text, encoding="utf-8")
