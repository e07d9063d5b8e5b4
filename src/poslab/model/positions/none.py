"""No positional scheme: the causal mask alone (Haviv et al. 2022, arXiv 2203.16634)."""

from poslab.model.positions import Scheme


class NoScheme(Scheme):
    two_sided = True  # without the mask order is invisible
