"""Write docs/schemes/, docs/zoo.md and docs/gallery.md: `python -m dev.pages`, in the project's folder."""

from dev.pages import written

written()
