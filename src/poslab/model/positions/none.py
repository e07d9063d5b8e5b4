"""No positional scheme: the causal mask alone (Haviv et al. 2022, arXiv 2203.16634)."""

from poslab.config.schema import Options
from poslab.model.positions import Scheme


class NoneOptions(Options):
    pass


class NoScheme(Scheme):
    options_class = NoneOptions
