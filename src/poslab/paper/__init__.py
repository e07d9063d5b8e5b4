"""A study as parts of a paper: a figure of panels, a narrow table, methods and references."""
