"""Reports from run records: figures, tables and a page. No model and no torch in here."""

from poslab.report.chosen import write_chosen
from poslab.report.load import studies
from poslab.report.sums import ReportError
from poslab.report.write import Report, show, terminal_table, write_report

__all__ = ["Report", "ReportError", "show", "studies", "terminal_table", "write_chosen", "write_report"]
