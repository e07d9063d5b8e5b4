"""Records into figures: arms and colours, estimates over seeds, comparisons, claims. No picture in here."""
