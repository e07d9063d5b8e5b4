"""Records into figures: arms, estimates over seeds, comparisons, claims. No text and no picture in here."""
