"""Weights into trained weights, to the same bits from any checkpoint."""
