"""Code shared by test files, which do not import each other."""
