"""Turn records into figures and CSV files: arms, estimates over seeds, comparisons, claims. No plotting."""
