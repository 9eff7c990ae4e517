"""Settings: what an operator may set, in options, variables and a TOML file, and the rules that follow.

Promises that the same text means the same everywhere, and that a mistake is one line which says what is accepted.

May use: nothing else of the package.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.settings.model import *
    from lockcache_daemon.settings.rules import *
    from lockcache_daemon.settings.sources import *
    from lockcache_daemon.settings.values import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "model": "DirectorySettings Settings settings_of",
            "rules": "Excess Exceeded Rules Watermarks of_namespaces of_size own_budgets rules_for",
            "sources": "SettingsError Sources variable_of",
            "values": "Address AddressError Free listen",
        },
    )
