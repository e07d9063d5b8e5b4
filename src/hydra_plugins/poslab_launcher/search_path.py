"""The folders of option files that installed packages declare (poslab.config.option_files), for Hydra."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class PoslabSearchPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from poslab.config.option_files import package_folders  # Hydra imports every plugin at start

        for folder in package_folders():
            search_path.append(provider="poslab.conf", path=f"file://{folder}")
