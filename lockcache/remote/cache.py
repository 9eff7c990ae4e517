# SPDX-License-Identifier: Apache-2.0
"""RemoteProgramCache: reads and stores programs on a server that several hosts share.

Keeps invariant 1 (a hit is whole) and 7 (never take the job down): see :mod:`lockcache.remote`. Keeps
invariant 2 (last write wins) for one object: what it stored or removed replaces, for it, what the server has from
before, whether the server took it or not. Between hosts: a write is seen once it was sent, in the order in which the
server took it; one that was lost is seen by nobody else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, TypeVar

from lockcache import serving
from lockcache.arguments import coerce_key_file, coerce_lease_timeout, configured_switch, is_disabled
from lockcache.explain import statement_of
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import Record, as_entry, load_keys
from lockcache.remote.counters import RemoteCounts
from lockcache.remote.node_state import Moment
from lockcache.remote.servers import RemoteUrl, parse_url, require_client
from lockcache.remote.store import RemoteStore
from lockcache.remote.turns import RemoteTurn, take_turn
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_entry,
    coerce_key,
    coerce_value,
    computed_entry,
    in_namespace,
)
from lockcache.serving import unreported, watch
from lockcache.single_flight import Flight, Turn, refuse_reentrance, take_off

__all__ = ["RemoteProgramCache"]

_T = TypeVar("_T")

#: Under ``$LOCKCACHE_RECACHE``: from when on entries of a server are believed in this process.
_renewing_since: Final[dict[RemoteUrl, Moment]] = {}


class RemoteProgramCache(ProgramCacheResource):
    """Programs on a server: Valkey or Redis, an object store, or HTTP in the layout of build caches.

    Made to be the last tier of a :class:`TieredProgramCache`, below a directory. One process of all hosts compiles a
    program, as far as the server keeps leases::

        cache = TieredProgramCache(FileStreamProgramCache(), RemoteProgramCache("redis://cache.example"))

    The server is not trusted: each entry is verified, and signed where there are keys. It is never waited for long: a
    process waits a second in its whole life for answers that do not come or come late, and then goes on without the
    server. What is stored is there for this object at once, and is sent in the background; :meth:`close`, and the end
    of the process, wait for that for five seconds at most, and only while the server takes something. What it did not
    take is lost, and counted.

    Args:
        url: The server: ``redis://``, ``rediss://`` and ``unix://`` (alone or of a cluster), ``s3://``, ``gs://`` and
            ``az://``, ``http://`` and ``https://``, the rest as its own client wants it. Settings of lockcache's own
            follow a question mark: ``prefix``, which stands before each key (``lockcache:``), and ``ttl``, after how
            many seconds Valkey may forget an entry that nobody stored again (30 days).
        signing_key_file: Sign what is stored with the first key of this file, and believe only what one of its keys
            signed. ``None``: ``$LOCKCACHE_SIGNING_KEY_FILE``, if that is set; False: neither.
        lease_timeout_seconds: How long another host that compiles is waited for. ``None``:
            ``$LOCKCACHE_LEASE_TIMEOUT``, else a minute. One that dies is waited for three seconds.

    ``len`` counts nothing and is 0, for the server is shared and may hold millions. :meth:`clear` removes nothing on
    the server: from then on this object reads nothing that was stored before, by the clocks of those who stored it.

    Raises :class:`ValueError` for a URL of another kind, :class:`ModuleNotFoundError` where its client is not
    installed (``lockcache[redis]``, ``[s3]``, ``[http]``), and as :class:`FileStreamProgramCache` for keys. Whether
    there is a server is not asked here.
    """

    _is_backing = True

    def __init__(
        self,
        url: str,
        *,
        signing_key_file: str | os.PathLike[str] | bool | None = None,
        lease_timeout_seconds: float | None = None,
    ) -> None:
        serving.obey_variables()
        self._url = parse_url(url)
        require_client(self._url)
        # The arguments of a pickled copy.
        self._arguments: dict[str, Any] = {
            "url": url,
            "signing_key_file": coerce_key_file(signing_key_file) or False,
            "lease_timeout_seconds": coerce_lease_timeout(lease_timeout_seconds),
        }
        self._is_off = is_disabled()
        self._is_renewing = configured_switch("LOCKCACHE_RECACHE")
        self._uncacheable = 0
        self._store = RemoteStore(self._url, load_keys(signing_key_file))
        if self._is_renewing:
            # One time for all equal objects of this process: what one of them compiled, another need not.
            self._store.unsent.replace_all(_renewing_since.setdefault(self._url, Moment.now()))

    @property
    def url(self) -> str:
        """The server, without user, password and settings."""
        return self._url.shown

    def __getitem__(self, key: bytes | str) -> bytes:
        loaded = self._load(coerce_key(key))
        if loaded is None:
            raise KeyError(key)
        return loaded[0]

    def get_entry(self, key: bytes | str) -> Entry | None:
        """Returns the entry with its metadata, or ``None``."""
        loaded = self._load(coerce_key(key))
        return None if loaded is None else as_entry(self.url, *loaded)

    def get_many(self, keys: Iterable[bytes | str]) -> dict[bytes, Entry]:
        """Returns the entries that the server has, by their keys as bytes, in one round trip or a few."""
        names = {entry_name(key): key for key in map(coerce_key, keys)}
        found = {} if self._is_off or not names else self._store.load_many(names)
        entries = {names[name]: as_entry(self.url, *loaded) for name, loaded in found.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}

    def __setitem__(self, key: bytes | str, value: object) -> None:
        name = coerce_key(key)
        self._send(name, Entry(*coerce_value(value)))
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit."""
        name = coerce_key(key)
        self._send(name, entry)
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """Returns the entry, or the caller's turn to compute it: one on all hosts, if the server keeps leases."""
        raw = coerce_key(key)
        publish_nowhere = in_namespace(namespace, computed_entry)
        loaded = self._load(raw)
        if loaded is None:
            refuse_reentrance(self, raw)
            if self._is_off:
                return Turn(publish_nowhere)
            flight = take_off(self, raw)
            outcome = self._turn_of_all_hosts(entry_name(raw), flight)
            if isinstance(outcome, RemoteTurn):
                if outcome.after_failure:
                    flight.land(failed=True)  # in this process nobody waits for it either
                flight.begin()
                publish = partial(self._publish_in, outcome, flight, raw)
                turn = Turn(in_namespace(namespace, publish), partial(_end, outcome, flight))
                turn._after_failure = outcome.after_failure
                return serving.watched(self, raw, label, turn) if watch.is_on else turn
            flight.land()
            loaded = outcome
        # An entry of a newer version, whose metadata cannot be read here, stays as it is.
        return as_entry(self.url, *loaded) or serving.unawaited(self, raw, label, publish_nowhere)

    def __delitem__(self, key: bytes | str) -> None:
        raw = coerce_key(key)
        was_there = self._load(raw) is not None
        if not self._is_off:
            self._store.remove(entry_name(raw))
        if not was_there:
            raise KeyError(key)

    def __len__(self) -> int:
        """Returns 0: what a server holds is not counted."""
        return 0

    def clear(self) -> None:
        """Read nothing from now on that was stored before now. On the server nothing is removed."""
        self._store.unsent.replace_all(Moment.now())

    def stats(self) -> CacheStats:
        """Returns the counters of this object. Writes lost on the way to the server are among the dropped ones."""
        counts = self._store.counts
        return CacheStats(
            hits=counts.hits,
            misses=counts.misses,
            waits=counts.waits,
            uncacheable=self._uncacheable,
            puts=counts.puts,
            dropped_writes=counts.lost_puts,
            corrupt_entries=counts.corrupt_entries,
            refused_entries=counts.refused_entries,
        )

    def remote_stats(self) -> RemoteCounts:
        """Returns all counters of this object, also of errors, bytes and answers."""
        return self._store.snapshot()

    @property
    def is_resting(self) -> bool:
        """Whether the server is not asked now: it failed a moment ago, or has used up this process's patience."""
        return self._store.link.is_given_up()

    @property
    def waited_seconds(self) -> float:
        """The seconds that this process has waited for answers of this server that did not come, or came late."""
        return self._store.link.patience.spent_seconds

    def flush(self) -> None:
        """Send what waits to be sent, for five seconds at most and while the server answers; the rest is lost."""
        self._store.flush()

    def close(self) -> None:
        """Send what waits to be sent, as :meth:`flush`, and close the connections. The cache may be used again."""
        self._store.close()

    def _recount(self, **counts: int) -> None:
        self._uncacheable += counts.pop("uncacheable", 0)
        self._store.counts.lost_puts += counts.pop("dropped_writes", 0)
        for name, count in counts.items():
            setattr(self._store.counts, name, getattr(self._store.counts, name) + count)

    def _missed(self, key: bytes) -> serving.Missed:
        from lockcache.remote.manifest import MissedKey  # few are sealed

        return MissedKey(entry_name(key), statement_of(key))

    def _load(self, key: bytes) -> tuple[bytes, bytes] | None:
        return None if self._is_off else self._store.load(entry_name(key))

    def _send(self, key: bytes, entry: Entry) -> None:
        code, tail, cost_ns = coerce_entry(entry)
        if not self._is_off:
            self._store.offer(entry_name(key), code, Record(len(code), time.time_ns(), cost_ns, tail))

    def _turn_of_all_hosts(self, name: str, flight: Flight) -> tuple[bytes, bytes] | RemoteTurn:
        if flight.after_failure:  # of a thread here: no other host is waited for
            return RemoteTurn(self._store, name, None, after_failure=True)
        # Since the first look a thread may have stored it; the server is asked again only after a wait for one.
        loaded = self._store.look(name, is_waiting=False) if flight.has_waited else self._store.look_at_own(name)
        if loaded is not None:
            self._recount(misses=-1, waits=flight.has_waited)
            return loaded
        timeout_seconds = self._arguments["lease_timeout_seconds"]
        return take_turn(self._store, name, timeout_seconds, has_waited=flight.has_waited)

    def _publish_in(self, turn: RemoteTurn, flight: Flight, key: bytes, value: object, cost_ns: int) -> Entry:
        try:
            entry = computed_entry(value, cost_ns)
            self._send(key, entry)
            return entry
        finally:
            _end(turn, flight)

    def __reduce__(self) -> Any:
        return partial(type(self), **self._arguments), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def _end(turn: RemoteTurn, flight: Flight, failed: bool = False) -> None:
    turn.end(failed)
    flight.land(failed)
