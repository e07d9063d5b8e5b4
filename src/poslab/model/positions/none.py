"""No positional scheme: only the causal mask (Haviv et al. 2022, arXiv 2203.16634)."""

from poslab.model.positions import Scheme


class NoScheme(Scheme):
    two_sided = True  # the model then has no information on the order of tokens
