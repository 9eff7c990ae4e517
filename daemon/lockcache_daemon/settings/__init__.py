# SPDX-License-Identifier: Apache-2.0
"""Settings: what an operator may set, in options, variables and a TOML file, and the rules that follow.

Promises that the same text means the same everywhere, and that a mistake is one line which says what is accepted.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.settings.model import DirectorySettings, Settings, settings_of
    from lockcache_daemon.settings.rules import Exceeded, Rules, Watermarks, of_namespaces, of_size, own_budgets
    from lockcache_daemon.settings.rules import rules_for
    from lockcache_daemon.settings.sources import SettingsError, Sources, variable_of
    from lockcache_daemon.settings.values import Address, AddressError, Free, listen
else:
    __getattr__, __dir__ = door(__name__)
