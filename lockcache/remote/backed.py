"""A cache that is backed by a server: the last two tiers of a :class:`TieredProgramCache` as one.

Decides that the cache in front is the truth of its host, and the server is asked for what that lacks. So a server that
is dead, evicts or lies removes nothing here (invariant 7, never take the job down), where the last tier otherwise is
the truth of those above it. Keeps invariant 2 (last write wins) on a host as far as the cache in front does, except
for the moment in which a lookup stores what it read from the server: another process's write in that moment may be
replaced by it.

Compile-once: the turn of the cache in front is taken first, so each host asks the server for a turn once.
"""

from __future__ import annotations

from lockcache.arguments import coerce_seconds
from lockcache.flight import Turn
from lockcache.resource import CacheStats, Entry, ProgramCacheResource, coerce_key, coerce_value, computed_entry

__all__ = ["BackedProgramCache", "with_backing"]


class BackedProgramCache(ProgramCacheResource):
    """``front``, which one host shares, backed by ``server``, which several do. No name of the public API."""

    def __init__(self, front: ProgramCacheResource, server: ProgramCacheResource) -> None:
        self._front = front
        self._server = server

    def __getitem__(self, key: bytes | str) -> bytes:
        entry = self.get_entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.code

    def get_entry(self, key: bytes | str) -> Entry | None:
        """The entry of the cache in front; else that of the server, which the cache in front gets."""
        name = coerce_key(key)
        entry = self._front.get_entry(name)
        if entry is not None:
            return entry
        entry = self._server.get_entry(name)
        if entry is not None:
            self._front.put_entry(name, entry)
        return entry

    def __setitem__(self, key: bytes | str, value: object) -> None:
        self.put_entry(key, Entry(*coerce_value(value)))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store in both. An error of the cache in front is raised when the server has the entry."""
        name = coerce_key(key)
        try:
            self._front.put_entry(name, entry)
        finally:
            self._server.put_entry(name, entry)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """The entry, or the caller's turn: of this host first, then of all that share the server."""
        name = coerce_key(key)
        mine = self._front.begin(name, label=label, namespace=namespace)
        if isinstance(mine, Entry):
            return mine
        try:
            found = self._server.begin(name, label=label, namespace=namespace)
        except BaseException:
            mine.give_up()
            raise
        if isinstance(found, Entry):
            return mine.store(found)
        every, turn = found, mine

        def publish(value: object, cost_ns: int) -> Entry:
            entry = turn.store(computed_entry(value, cost_ns), cost_ns)
            return every.store(entry, cost_ns)

        def end() -> None:
            turn.give_up()
            every.give_up()

        return Turn(publish, end)

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """The entry, as soon as a process of this host stores it; else the server's."""
        name, seconds = coerce_key(key), coerce_seconds("timeout_seconds", timeout_seconds)
        return self._front.wait(name, seconds) or self.get_entry(name)

    def view_files(self, key: bytes | str) -> str | None:
        """As the cache in front has it, after the server was asked."""
        name = coerce_key(key)
        return self._front.view_files(name) if self.get_entry(name) is not None else None

    def _note_bypass(self) -> None:
        self._front._note_bypass()

    def __delitem__(self, key: bytes | str) -> None:
        """Remove the entry from both; :class:`KeyError` only if neither had it."""
        name = coerce_key(key)
        found = [_remove(store, name) for store in (self._front, self._server)]
        if not any(found):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._front)

    def clear(self) -> None:
        """Clear both, which on a server removes nothing and hides what is there from this object."""
        self._front.clear()
        self._server.clear()

    def stats(self) -> CacheStats:
        """Those of the cache in front."""
        return self._front.stats()

    def close(self) -> None:
        """Close both. The cache may be used again."""
        self._front.close()
        self._server.close()


def _remove(store: ProgramCacheResource, name: bytes) -> bool:
    try:
        del store[name]
    except KeyError:
        return False
    return True


def with_backing(tiers: tuple[ProgramCacheResource, ...]) -> tuple[ProgramCacheResource, ...]:
    """The tiers of a :class:`TieredProgramCache`, of which a server and the one in front of it are one.

    For those with a server among them. Raises :class:`TypeError` for a server in front of another tier.
    """
    if any(tier._is_backing for tier in tiers[:-1]):
        raise TypeError("a RemoteProgramCache must be the last tier: others are not asked after it")
    return tiers if len(tiers) == 1 else (*tiers[:-2], BackedProgramCache(*tiers[-2:]))
