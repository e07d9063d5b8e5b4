"""The numbers of a report: arms, estimates over seeds, comparisons. Nothing here is text or a picture."""
