"""A report's document laid out: page, Markdown, CSV files, paper figures, tables of the terminal."""
