"""Compile costs of entries, by their records: read without the payload, for ranking many entries.

Keeps the caution of invariant 1 (a hit is whole) for numbers: a record that is damaged as far as can be seen without
the payload (it is not understood, or is of a payload of another length), or that says what no compilation takes, says
nothing. So the worst that a bit can do is to move one entry in an order. One ``getxattr`` an entry, by path and
following no symlink; a record file is opened only where there are any.
"""

from __future__ import annotations

import os

from lockcache.filestream.accounting import Found
from lockcache.filestream.disk import READ, Layout, open_below
from lockcache.filestream.entry.codec import HEAD_BYTES, LONG_PAYLOAD, XATTR, cost_of, is_known, length_and_cost

# Looked up once: a sweep of a million entries asks for the prices of 300,000.
_getxattr, _XATTR = os.getxattr, XATTR.encode()


class Prices:
    """The recorded costs of one directory. For one ranking: it remembers which shards have record files."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._entries = layout.entries
        self._has_records: dict[str, bool] = {}

    def cost_ns(self, found: Found) -> int:
        """Nanoseconds, as :data:`.eviction.choose.CostOf` has it. Raises nothing: an entry may be gone by now."""
        name = found.name
        has_records = self._has_records.get(name[:2])
        if has_records is None:
            has_records = self._look_for_records(name[:2])
        try:
            blob = _getxattr(f"{self._entries}/{name[:2]}/{name[2:]}", _XATTR, follow_symlinks=False)
        except OSError:
            blob = self._head_in_file(name) if has_records else b""
        if not is_known(blob):
            return 0
        stated, _ = length_and_cost(blob)
        size = found.stored_bytes
        # With a record file, which counts for the entry's size, the payload's own length is not known here.
        if stated != size and (stated > size or (stated != LONG_PAYLOAD and not has_records)):
            return 0
        return cost_of(blob)

    def _look_for_records(self, prefix: str) -> bool:
        has_records = self._has_records[prefix] = os.path.isdir(self._layout.record_shard(int(prefix, 16)))
        return has_records

    def _head_in_file(self, name: str) -> bytes:
        try:
            with open_below(self._layout, self._layout.record(name), READ) as fd:
                return os.read(fd, HEAD_BYTES)
        except OSError:
            return b""
