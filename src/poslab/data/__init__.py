"""Text into token windows: sources -> split -> tokens -> windows.

This package does not import torch, so that a wrong path or a short text is reported at once.
"""
