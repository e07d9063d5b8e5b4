"""The files of a run, written and read, and the figures that follow from one run's record."""
