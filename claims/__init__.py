"""Claims about positional encodings, each judged by a computation or a study: python -m claims.

This folder uses only what `import poslab` offers, as any other program would.
"""
