"""Figures into sections, sections into a page, Markdown and files. No model and no torch in here."""
