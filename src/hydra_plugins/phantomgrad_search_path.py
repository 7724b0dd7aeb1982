"""The configurations of extensions and users, where Hydra looks for them: in ``hydra_plugins``."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from phantomgrad_suite.runs.configs import folders


class OwnConfigurations(SearchPathPlugin):
    """Appends those of extensions and of ``PHANTOMGRAD_CONFIG_PATH`` to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append them, in their order."""
        for folder in folders()[1:]:
            search_path.append(provider="own", path=f"file://{folder.resolve()}")
