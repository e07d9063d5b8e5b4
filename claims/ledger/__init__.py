"""The claims: each file has one or a few related ones in its tuple CLAIMS.

`claims.contract.ledger` finds them. Claims about what the code computes call the code that trains, never a
copy of it, so that a fault there changes a verdict (tests/claims/test_planted_faults.py).
"""
