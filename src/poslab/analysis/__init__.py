"""Records into figures and CSV files: arms, colours, estimates over seeds, comparisons, claims. No picture here."""
