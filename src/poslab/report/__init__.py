"""Records into numbers, numbers into sections, sections into a page. No model and no torch in here."""
