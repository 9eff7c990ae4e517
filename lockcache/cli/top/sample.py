# SPDX-License-Identifier: Apache-2.0
"""Samples of a directory for ``lockcache top``, taken repeatedly at a cost that does not grow with the directory.

A look reads the accounting page, the counters, the policy and the daemon's status, lists ``tmp/``, and walks a few
shards: those whose accounting changed since the last look, else the next ones in turn. A shard of a million entries is
walked in 12 ms. Another program's directory is walked whole, for a tenth of the time at most. Makes no file; a
directory that is deleted meanwhile is shown as gone.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache.cli.catalogue import Guest, Own
from lockcache.errors import LockcacheError
from lockcache.filestream.accounting import total_of
from lockcache.lowlevel import (
    SHARDS,
    Described,
    Found,
    Layout,
    Selection,
    Slot,
    StatedPolicy,
    accounted,
    describe_entry,
    keeper_of,
    measured,
    read_counters,
    read_status,
    scan_shard,
    staged,
)

_NEWEST: Final = 10
# Shards that one look walks: some 50 ms of a million entries.
_SHARDS_PER_LOOK: Final = 4
# The share of the time for walks of another program's directory.
_WALKING_SHARE: Final = 0.1
# If there are fewer entries than this, each look walks all.
_SMALL_ENTRIES: Final = 4096


@dataclass(frozen=True)
class Look:
    """One directory at one moment."""

    path: str
    layout: str = "lockcache"
    #: Seconds since the epoch.
    time: float = 0.0
    #: Why nothing can be said, if that is so.
    gone: str | None = None
    bytes: int = 0
    entries: int = 0
    max_size_bytes: int | None = None
    staged_writes: int = 0
    staged_bytes: int = 0
    hit_ratio: float | None = None
    #: The compile time that the reported hits saved.
    saved_ns: int = 0
    #: Per second since the look before: hits, waits, misses, puts, evictions. Of those that were reported.
    rates: dict[str, float] = field(default_factory=dict)
    daemon: str | None = None
    #: Bytes by namespace, where a daemon counts them; the largest first.
    namespaces: dict[str, int] = field(default_factory=dict)
    newest: list[Described] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Returns the look in the shape of its JSON."""
        newest = [
            {key: value for key, value in entry._asdict().items() if key not in ("inode", "metadata")}
            for entry in self.newest
        ]
        return {**self.__dict__, "newest": newest}


class Watch:
    """Looks at one directory again and again."""

    def __init__(self, layout: Layout, program: str = "lockcache") -> None:
        self._layout = layout
        self._program = program
        self._policy = StatedPolicy(layout)
        self._slots: list[Slot] = []
        self._measured: list[Slot] | None = None
        self._next_shard = 0
        self._newest: dict[str, Found] = {}
        self._counts: dict[str, int] = {}
        self._counted_ns = 0

    def look(self) -> Look:
        """Returns the state of the directory now. No fault of the directory raises."""
        try:
            return self._look()
        except (OSError, LockcacheError) as error:
            gone = getattr(error, "strerror", None) or str(error)
            return Look(self._layout.root, self._program, time.time(), gone)

    def _look(self) -> Look:
        layout, held = self._layout, self._measure()
        under_way, counters, keeper = staged(layout), read_counters(layout), keeper_of(layout)
        status = read_status(layout) if keeper else {}
        counts = {name: getattr(counters, name) for name in ("hits", "waits", "misses", "puts", "evictions")}
        swept = status.get("evicted_entries")
        counts["evictions"] += swept if isinstance(swept, int) else 0
        return Look(
            path=layout.root,
            layout=self._program,
            time=time.time(),
            bytes=held.bytes,
            entries=held.entries,
            max_size_bytes=self._policy.load().max_size_bytes,
            staged_writes=under_way.entries,
            staged_bytes=under_way.bytes,
            hit_ratio=counters.hit_ratio,
            saved_ns=counters.saved_ns,
            rates=self._rates(counts),
            daemon=keeper,
            namespaces=_namespaces_in(status),
            newest=self._describe_newest(),
        )

    def _measure(self) -> Slot:
        """Returns what the directory holds; finds its newest entries as well."""
        slots = accounted(self._layout)
        if slots is None:
            # Only cuda.core writes here, or we may not read the page: measured once, for it takes seconds.
            self._measured = self._measured or measured(self._layout)
            slots = self._measured
        self._walk_some(slots)
        return total_of(slots)

    def _rates(self, counts: dict[str, int]) -> dict[str, float]:
        now_ns, before = time.monotonic_ns(), self._counts
        seconds = (now_ns - self._counted_ns) / 1e9
        self._counts, self._counted_ns = counts, now_ns
        # The count is less than before: the page was made again, or another daemon counts.
        return {name: max(0, count - before[name]) / seconds for name, count in counts.items()} if before else {}

    def _walk_some(self, slots: list[Slot]) -> None:
        changed = [shard for shard in range(SHARDS) if not self._slots or slots[shard] != self._slots[shard]]
        if sum(slot.entries for slot in slots) <= _SMALL_ENTRIES:
            shards = list(range(SHARDS))
        else:
            in_turn = [(self._next_shard + step) % SHARDS for step in range(_SHARDS_PER_LOOK)]
            shards = (changed if len(changed) < SHARDS else [])[: _SHARDS_PER_LOOK - 1] + in_turn
            shards = shards[:_SHARDS_PER_LOOK]
            self._next_shard = (shards[-1] + 1) % SHARDS
        self._slots = slots
        found = {entry.name: entry for shard in shards for entry in scan_shard(self._layout, shard)}
        kept = {name: entry for name, entry in self._newest.items() if int(name[:2], 16) not in shards}
        newest = heapq.nlargest(_NEWEST, [*kept.values(), *found.values()])
        self._newest = {entry.name: entry for entry in newest}

    def _describe_newest(self) -> list[Described]:
        newest = sorted(self._newest.values(), reverse=True)
        return [entry for found in newest if (entry := self._describe(found)) is not None]

    def _describe(self, found: Found) -> Described | None:
        return describe_entry(self._layout, found)


def _namespaces_in(status: dict[str, Any]) -> dict[str, int]:
    """Returns the sizes that a daemon's status states, without values of another shape: others may have written it."""
    stated = status.get("namespaces")
    slots = stated.items() if isinstance(stated, dict) else ()
    sizes = {name: slot.get("bytes") for name, slot in slots if isinstance(slot, dict)}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


class _GuestWatch(Watch):
    """Another program's directory: walked, as often as that is worth it."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest.layout, guest.program)
        self._guest = guest
        self._held = Slot(0, 0)
        self._due = 0.0

    def _measure(self) -> Slot:
        began = time.monotonic()
        if began >= self._due:
            found = list(self._guest.select(Selection(), time.time_ns()))
            self._held = Slot(sum(each.size_bytes for each in found), len(found))
            self._newest = {each.name: each for each in heapq.nlargest(_NEWEST, found)}
            now = time.monotonic()
            self._due = now + (now - began) / _WALKING_SHARE
        return self._held

    def _describe(self, found: Found) -> Described:
        return self._guest.describe(found)


def watch(catalogue: Own | Guest) -> Watch:
    """Returns what looks at this directory."""
    return _GuestWatch(catalogue) if isinstance(catalogue, Guest) else Watch(catalogue.layout, catalogue.program)
