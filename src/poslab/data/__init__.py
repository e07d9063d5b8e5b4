"""Text into token windows: sources -> split -> tokens -> windows.

This package does not import torch, so a wrong path or a text that is too short is reported at once.
"""
