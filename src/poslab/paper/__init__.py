"""The parts of a paper on a study: a figure of panels, a narrow table, methods and references."""
