"""A cache on a server that several hosts share: :class:`RemoteProgramCache`, alone or behind another cache.

Caches that are only read stand behind another one in the same way, so that is decided here too (:mod:`.backed`).
Promises invariant 1 (a hit is whole), whatever the server answers, and invariant 7 (never take the job down), whatever
it does. What it rests on is in :mod:`lockcache.filestream.remote`, which directories use too.

May use: the parts of the store.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.remote.backed import with_backing
    from lockcache.remote.cache import RemoteProgramCache

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
