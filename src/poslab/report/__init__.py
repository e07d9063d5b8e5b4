"""Reports: figures, sections, page, Markdown and files. This package uses no models and no torch."""
