# SPDX-License-Identifier: Apache-2.0
"""NullStore: keeps nothing, for a cache that is off, has no place, or only reads a directory that is missing.

Every lookup misses, every write is dropped, and neither reaches a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from lockcache.composition.parts import NOTHING_COUNTED, Parts, counted
from lockcache.default_directory import NOWHERE
from lockcache.filestream import CacheDirectory, Outcome, Writer, Written
from lockcache.filestream.accounting import Slot, StatedPolicy
from lockcache.filestream.disk import Layout, UnstatedRecency
from lockcache.filestream.entry import EntryReader, Record
from lockcache.filestream.eviction import Evicted
from lockcache.filestream.repair import Repair
from lockcache.reports import CountersReport


class NullStore(Parts):
    """The parts of a cache that keeps nothing: this object has what a cache asks of its directory and its writer."""

    is_read_only: Final = True
    is_shared: Final = False
    #: Nothing is kept of headers either.
    closures = None

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.layout = Layout(NOWHERE, is_shared=False)
        self.policy = StatedPolicy(self.layout)
        self.directory, self.writer = cast("CacheDirectory", self), cast("Writer", self)
        self.load = self.here = self._miss
        self._arguments, self.counts = arguments, {**NOTHING_COUNTED}
        self.reader = EntryReader(self.layout, UnstatedRecency(NOWHERE))
        self.report = CountersReport(partial(counted, self.reader, self.counts), None)

    def refuse_if_read_only(self) -> None:
        """Do nothing: what is not there may be removed."""

    def held(self) -> Slot:
        """Returns the sums of nothing."""
        return Slot(0, 0)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """Drop the write."""
        return Written(Outcome.DROPPED, Evicted(), "this cache keeps nothing")

    def remove(self, name: str) -> bool:
        """Returns that there was no entry."""
        return False

    def remove_all(self) -> None:
        """Do nothing."""

    def recount(self) -> list[Repair]:
        """Returns that nothing was wrong."""
        return []

    def count_dropped(self, reason: str) -> None:
        """Count a write that was dropped. There is nothing to log: this cache keeps nothing."""
        self.counts["dropped_writes"] += 1

    def _miss(self, name: str) -> None:
        self.reader.misses += 1
