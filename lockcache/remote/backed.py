# SPDX-License-Identifier: Apache-2.0
"""A cache that is backed by others: the last tier of a :class:`TieredProgramCache` that decides, and those behind it.

Behind it are tiers that are only read (a golden directory, a bundle), and a server. Decides that the cache in front is
the truth of its host, and those are asked for what it lacks. So a server that is dead, evicts or lies removes nothing
here (invariant 7, never take the job down), nor does a golden directory that never had it, where the last tier
otherwise is the truth of those above it. Those are sources: they may have another value of a key than the cache in
front had, and either is right, since keys are digests of content. Keeps invariant 2 (last write wins) on a host as far
as the cache in front does, except for the moment in which a lookup stores what it read from behind: another process's
write in that moment may be replaced by it.

Compile-once: the turn is that of the cache in front. A server is asked for one within it, so once by each host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools

from lockcache import serving
from lockcache.arguments import coerce_seconds
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_key,
    coerce_value,
    computed_entry,
    put_copy_into,
    remove_from,
)
from lockcache.serving import unreported, watch
from lockcache.single_flight import Turn

__all__ = ["BackedProgramCache", "with_backing"]


class BackedProgramCache(ProgramCacheResource):
    """``front``, which takes writes, backed by ``behind``: a server, or what is only read. No public name."""

    def __init__(self, front: ProgramCacheResource, behind: ProgramCacheResource) -> None:
        self._front = front
        self._behind = behind

    @property
    def _is_only_read(self) -> bool:  # type: ignore[override]
        return self._front._is_only_read

    def __getitem__(self, key: bytes | str) -> bytes:
        entry = self.get_entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.code

    def get_entry(self, key: bytes | str) -> Entry | None:
        """The entry of the cache in front; else that of the one behind it, which the cache in front gets."""
        name = coerce_key(key)
        return self._front.get_entry(name) or self._from_behind(name)

    def _peek(self, name: bytes) -> Entry | None:
        return self._front._peek(name) or self._from_behind(name)

    def _from_behind(self, name: bytes) -> Entry | None:
        entry = self._behind.get_entry(name)
        if entry is not None and not self._is_only_read:
            # A front that may not be written, or keeps no metadata, has no copy.
            with contextlib.suppress(OSError, TypeError):
                put_copy_into(self._front, name, entry)
        return entry

    def __setitem__(self, key: bytes | str, value: object) -> None:
        self.put_entry(key, Entry(*coerce_value(value)))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store in both. An error of the cache in front is raised when the one behind it has the entry."""
        name = coerce_key(key)
        try:
            self._front.put_entry(name, entry)
        finally:
            self._behind.put_entry(name, entry)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """The entry, or the caller's turn: of this host first, then of all that share the server."""
        name = coerce_key(key)
        unreported.depth += 1  # the one behind may have it
        try:
            mine = self._front.begin(name, label=label, namespace=namespace)
        finally:
            unreported.depth -= 1
        if isinstance(mine, Entry):
            return mine
        found = self._begin_behind(name, label, namespace, mine)
        if watch.is_on and isinstance(found, Turn):
            return serving.watched(self, name, label, found)
        return found

    def _begin_behind(self, name: bytes, label: str, namespace: str, mine: Turn[Entry]) -> Entry | Turn[Entry]:
        unreported.depth += 1
        try:
            found = self._behind.begin(name, label=label, namespace=namespace)
        except BaseException:
            mine.give_up()
            raise
        finally:
            unreported.depth -= 1
        if isinstance(found, Entry):
            if not self._is_only_read:
                origin = unreported.origin
                unreported.origin = origin or "found"
                try:
                    return mine.store(found)
                finally:
                    unreported.origin = origin
            mine.give_up()
            return found
        every, turn = found, mine
        if every._after_failure:
            turn._let_all_go()  # on this host nobody waits for it either

        def publish(value: object, cost_ns: int) -> Entry:
            entry = turn.store(computed_entry(value, cost_ns), cost_ns)
            return every.store(entry, cost_ns)

        def end(failed: bool) -> None:
            turn.give_up(failed=failed)
            every.give_up(failed=failed)

        return Turn(publish, end)

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """The entry, as soon as a process of this host stores it; else that of the cache behind."""
        name, seconds = coerce_key(key), coerce_seconds("timeout_seconds", timeout_seconds)
        return self._front.wait(name, seconds) or self._from_behind(name)

    def view_files(self, key: bytes | str) -> str | None:
        """As the cache in front has it, after the one behind it was asked."""
        name = coerce_key(key)
        return self._front.view_files(name) if self.get_entry(name) is not None else None

    def _missed(self, key: bytes) -> serving.Missed | None:
        return self._front._missed(key) or self._behind._missed(key)

    def _note_uncacheable(self, reason: str) -> None:
        self._front._note_uncacheable(reason)

    def _recount(self, **counts: int) -> None:
        self._front._recount(**counts)

    def __delitem__(self, key: bytes | str) -> None:
        """Remove the entry from both; :class:`KeyError` only if neither had it."""
        name = coerce_key(key)
        # The one behind first: where it refuses, the cache in front keeps its entry, and no lookup in between copies
        # what is behind.
        found = [remove_from(store, name) for store in (self._behind, self._front)]
        if not any(found):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._front)

    def clear(self) -> None:
        """Clear both, which on a server removes nothing and hides what is there from this object."""
        self._behind.clear()
        self._front.clear()

    def stats(self) -> CacheStats:
        """Returns the statistics of the cache in front, with the damage and the waits of both."""
        front, behind = self._front.stats(), self._behind.stats()
        return dataclasses.replace(
            front,
            corrupt_entries=front.corrupt_entries + behind.corrupt_entries,
            unverified_hits=front.unverified_hits + behind.unverified_hits,
            waits=front.waits + behind.waits,
        )

    def close(self) -> None:
        """Close both. The cache may be used again."""
        self._front.close()
        self._behind.close()


class _OnlyRead(ProgramCacheResource):
    """A tier that is only read, behind one that is written: it takes no writes, and counts none as dropped."""

    def __init__(self, tier: ProgramCacheResource) -> None:
        self._tier = tier

    def __getitem__(self, key: bytes | str) -> bytes:
        return self._tier[key]

    def get_entry(self, key: bytes | str) -> Entry | None:
        return self._tier.get_entry(key)

    def __setitem__(self, key: bytes | str, value: object) -> None:
        """Do nothing: the cache in front has the value."""

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Do nothing: the cache in front has the entry."""

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """The entry, or a turn for which nobody waits: the cache in front has the other."""
        return self._tier.get_entry(key) or Turn(computed_entry)

    def __delitem__(self, key: bytes | str) -> None:
        """Raise what the tier raises if it has the entry."""
        if self._tier.get_entry(key) is None:
            raise KeyError(key)
        del self._tier[key]

    def __len__(self) -> int:
        return len(self._tier)

    def clear(self) -> None:
        """Raise what the tier raises if it has an entry."""
        if len(self):
            self._tier.clear()

    def stats(self) -> CacheStats:
        return self._tier.stats()

    def close(self) -> None:
        self._tier.close()


def with_backing(tiers: tuple[ProgramCacheResource, ...]) -> tuple[ProgramCacheResource, ...]:
    """The tiers of a :class:`TieredProgramCache`, of which the last that decides and those behind it are one.

    For those with a server or one that is only read among them. Raises :class:`TypeError` for a server in front of
    another tier, and for a bundle in front of one that is written, or of none.
    """
    if any(tier._is_backing for tier in tiers[:-1]):
        raise TypeError("a RemoteProgramCache must be the last tier: others are not asked after it")
    for index, tier in enumerate(tiers):
        if tier._is_fixed and not (index and all(other._is_only_read or other._is_backing for other in tiers[index:])):
            what = f"tiers[{index}] is a {type(tier).__name__}, which never changes and takes no writes"
            raise TypeError(f"{what}: put it behind the caches that do")
    last = _last_that_decides(tiers)
    behind = [tier if tier._is_backing else _OnlyRead(tier) for tier in tiers[last + 1 :]]
    return (*tiers[:last], functools.reduce(BackedProgramCache, behind, tiers[last]))


def _last_that_decides(tiers: tuple[ProgramCacheResource, ...]) -> int:
    """Returns the index of the last tier that takes writes; where none does, of the first that is read.

    A server never decides.
    """
    here = [index for index, tier in enumerate(tiers) if not tier._is_backing] or [0]
    read = [index for index in here if not tiers[index]._is_off]
    written = [index for index in read if not tiers[index]._is_only_read]
    return written[-1] if written else (read or here[-1:])[0]
