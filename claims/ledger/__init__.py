"""The claims, a file for one or for a few that belong together; `claims.contract.ledger` finds them.

A file has a tuple CLAIMS. Claims about what the code computes call the code that trains, never a copy of it,
so that a fault there changes a verdict (tests/claims/test_planted_faults.py).
"""
