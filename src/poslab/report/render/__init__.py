"""A report's document laid out: page, Markdown, LaTeX, CSV files, paper figures, tables of the terminal."""
