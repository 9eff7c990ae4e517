# SPDX-License-Identifier: Apache-2.0
"""ReadOnlyParts: the parts of a cache whose directory is only read, so that no other part asks for that.

Nothing in the directory is made or changed: no policy, no seed, no counters, no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockcache.asked_once import AskedOnce
from lockcache.composition.modes import DroppingWriter
from lockcache.composition.parts import Parts
from lockcache.filestream import Priority, Writer

if TYPE_CHECKING:
    from lockcache.filestream import CacheDirectory


class ReadOnlyParts(Parts):
    """The parts of a cache that only reads."""

    counting: Any = None

    def __init__(self, arguments: Mapping[str, Any], directory: CacheDirectory) -> None:
        """Without turns: what cannot be stored nobody needs to wait for."""
        super().__init__({**arguments, "compile_once": False}, directory)

    def _apply_rules(self, cap: int | None, priority: Priority | None) -> bool:
        """Change nothing. Returns whether there may be a seed."""
        return self._may_have_seed()

    def _find_sources(self) -> str:
        super()._find_sources()
        return ""  # nothing is fetched before it is looked up

    def _make_reader(self, *, is_seeded: bool) -> None:
        super()._make_reader(is_seeded=is_seeded)
        lookup = self._look_up_further(is_seeded=is_seeded)
        if lookup.is_hidden is None:
            lookup.is_hidden = self._superseded.__contains__

    @AskedOnce
    def writer(self) -> Writer:
        """Stores nothing."""
        return DroppingWriter(self.directory, self._superseded)
