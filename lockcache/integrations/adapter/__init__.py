# SPDX-License-Identifier: Apache-2.0
"""The part that all adapters to frameworks share: the cache, its turns, and errors that never reach a compilation.

Promises invariant 7 (never take the job down) for programs that did not ask for lockcache: a directory that cannot be
used, changed doors of a framework and any error of lockcache are one warning, and then the framework's own cache.

May use: key_parts.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.adapter.framework_doors import UnsupportedError, looking_for_doors
    from lockcache.integrations.adapter.installing import install, installed, open_shared
    from lockcache.integrations.adapter.never_raising import NeverRaising, warn
    from lockcache.integrations.adapter.shared import Parts, Shared
else:
    __getattr__, __dir__ = door(__name__)
