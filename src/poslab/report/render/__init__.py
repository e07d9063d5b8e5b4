"""The layout of a report's document: page, Markdown, paper figures and tables for the terminal."""
