# SPDX-License-Identifier: Apache-2.0
"""Back ends of third parties, as tiers: one that a test may hook into, one that may only be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockcache import ProgramCacheResource


class Plain(ProgramCacheResource):
    """A back end of a third party: no metadata, and steps that a test may hook into."""

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self.before_set: Callable[[], object] = lambda: None
        self.after_get: Callable[[], object] = lambda: None

    def __getitem__(self, key: Any) -> bytes:
        found = self.items.get(key)
        self.after_get()
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self.before_set()
        self.items[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.items[key]

    def __len__(self) -> int:
        return len(self.items)

    def clear(self) -> None:
        self.items.clear()


class Refusing(Plain):
    """A back end that may only be read."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise PermissionError(13, "this tier may only be read")

    def __delitem__(self, key: Any) -> None:
        if key in self.items:
            raise PermissionError(13, "this tier may only be read")
        raise KeyError(key)
