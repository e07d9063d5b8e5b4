"""Text into token windows: sources -> split -> tokens -> windows.

No torch here, so that a bad path or a text too short is reported at once.
"""
