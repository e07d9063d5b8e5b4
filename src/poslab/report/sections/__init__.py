"""The sections of a report: numbers into charts, tables and sentences, a function for each of them."""
