# SPDX-License-Identifier: Apache-2.0
"""The table of costs: what compiling a key took the last time, remembered past the entry's eviction.

Decides how long a waiter waits for a lease holder, and what it reports to its user. The costs are advice, so a small
table that forgets suffices: 16 KiB behind the state page, with 1,024 slots of (tag, 0, cost). The key's hash chooses
the slot, and later keys replace earlier ones. Read and written without a lock; the tag tells a slot of another key.
Not promised: that a cost is known. Evictions have a table of their own, of all entries (:mod:`.accounting.worth`).
"""

from __future__ import annotations

import os
import struct
from typing import Final

from lockcache.filestream.accounting import PAGE_BYTES
from lockcache.filestream.disk import UPDATE, Layout, is_alone, refuse_symlink

_SLOT: Final = struct.Struct("<6sHq")
#: Sized for the kernels of one job (some hundred): those of them that share a slot know no cost.
_SLOTS: Final = 1024
_LARGEST: Final = 2**63 - 1
# A holder has a minute at least, and a waiter says after two seconds that it waits.
_LEAST_NS: Final = 10**9


class CostTable:
    """The last known compile costs of a directory."""

    __slots__ = ("_layout", "_path")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.state

    def cost_ns(self, name: str) -> int:
        """Returns the nanoseconds that the last compilation of ``name`` took; 0 if they are not known."""
        offset, tag = _place(name)
        try:
            refuse_symlink(os.path.dirname(self._path))
            with self._layout.reach.open(self._path, UPDATE) as fd:
                blob = os.pread(fd, _SLOT.size, offset)
        except OSError:
            return 0
        if len(blob) < _SLOT.size or blob[: len(tag)] != tag:
            return 0
        return max(0, int(_SLOT.unpack(blob)[2]))

    def remember(self, name: str, cost_ns: int) -> None:
        """Note a cost, unless it is too short to say anything. Does nothing where the directory cannot be written."""
        if cost_ns < _LEAST_NS:
            return
        offset, tag = _place(name)
        try:
            refuse_symlink(os.path.dirname(self._path))
            with self._layout.reach.open(self._path, UPDATE) as fd:
                if is_alone(fd):
                    os.pwrite(fd, _SLOT.pack(tag, 0, min(max(0, cost_ns), _LARGEST)), offset)
        except OSError:
            return


def _place(name: str) -> tuple[int, bytes]:
    return PAGE_BYTES + int(name[-4:], 16) % _SLOTS * _SLOT.size, bytes.fromhex(name[:12])
