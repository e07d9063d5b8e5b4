"""Reports from run records: figures, tables and a page. No model and no torch in here."""
