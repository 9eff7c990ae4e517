"""Namespaces of entries: whose each is among the programs that share a directory, and what each holds.

A namespace is what the program that stored an entry said (``triton``), and :data:`.select.UNKNOWN` if it said nothing;
it may be a lie. Reads records by path, 20 us each, which states no use of an entry.
"""

from __future__ import annotations

from lockcache.filestream.accounting import Found, Slot, scan_shard
from lockcache.filestream.disk import Layout
from lockcache.filestream.entry import namespace_of, read_statement
from lockcache.filestream.eviction.select import UNKNOWN


def name_namespace(layout: Layout, found: Found) -> str:
    """The namespace of an entry."""
    return namespace_of(read_statement(layout, found, is_brief=True)) or UNKNOWN


def count_namespaces(layout: Layout, shard: int) -> dict[str, Slot]:
    """What each namespace holds in one shard."""
    held: dict[str, Slot] = {}
    for found in scan_shard(layout, shard):
        add_namespaces(held, {name_namespace(layout, found): Slot(found.size_bytes, 1)})
    return held


def add_namespaces(held: dict[str, Slot], more: dict[str, Slot]) -> None:
    """Add what each namespace holds elsewhere."""
    for name, slot in more.items():
        before = held.get(name, Slot(0, 0))
        held[name] = Slot(before.bytes + slot.bytes, before.entries + slot.entries)
