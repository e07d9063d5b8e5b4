"""The files of a run: written, read, and the figures that follow from one run's record."""
