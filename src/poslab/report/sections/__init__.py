"""The sections of a report. One function turns the numbers into each chart, table or sentence."""
