"""YAML parsed by libyaml: Hydra reads eighteen files for each configuration, half of what composing takes."""

import omegaconf._utils
from yaml.constructor import SafeConstructor
from yaml.cyaml import CParser
from yaml.resolver import Resolver


def parse_in_c() -> None:
    """Have OmegaConf, and so Hydra, read YAML in this process as before, but for its parser."""

    class InC(CParser, omegaconf._utils.get_yaml_loader()):  # type: ignore[misc]
        def __init__(self, stream: object) -> None:
            CParser.__init__(self, stream)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    omegaconf._utils.get_yaml_loader = lambda: InC
