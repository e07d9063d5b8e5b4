"""Requests into made runs: planned, launched, watched, reported."""
