"""Claims about positional encodings, each judged by a computation or a study: python -m claims.

Of poslab this folder uses what `import poslab` gives, as a program of anybody else would.
"""
