# SPDX-License-Identifier: Apache-2.0
"""RemoteStore: the entries of one server, as one process sees them.

Keeps invariant 1 (a hit is whole): each answer is verified (:mod:`.sealing`), and what fails is a counted miss. A
process that stored or removed an entry reads no other one until the server has taken that (:mod:`.node_state`), and
finds what it stored while that is on its way: or a thread would compile again what another has just stored. Keeps
invariant 7 (never take the job down): nothing raises, and waits are bounded (:mod:`.link`).

Not promised: that another process sees a write before it is sent, or after it was lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from lockcache.filestream.entry import LARGEST_RECORD_BYTES, KeyRing, Record, RefusedEntryError, unpack
from lockcache.remote.counters import RemoteCounts
from lockcache.remote.link import READING, RESTING, Link
from lockcache.remote.node_state import UnsentWrites, Write
from lockcache.remote.sealing import seal, unseal
from lockcache.remote.servers import LARGEST_VALUE_BYTES, Answer, RemoteUrl, Transport
from lockcache.remote.turns import Lookups, RemoteTurn, take_turn
from lockcache.remote.wait_limits import Breaker

__all__ = ["RemoteStore"]

_log = logging.getLogger("lockcache")


class RemoteStore:
    """The entries of one server. Any thread may use it; after a fork the child has connections of its own."""

    def __init__(
        self,
        url: RemoteUrl,
        keys: KeyRing | None = None,
        *,
        breaker: Breaker | None = None,
    ) -> None:
        self.url = url
        self.counts = RemoteCounts()
        #: The calls to the server.
        self.link = Link(url, self.counts, Breaker() if breaker is None else breaker)
        self.unsent = UnsentWrites()
        self._keys = keys
        self._has_read_back = False

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns payload and record of an entry, verified; ``None`` for a miss, of whatever cause."""
        return self.load_many([name]).get(name)

    def load_many(self, names: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Returns the entries that the server has, verified, in one call."""
        wanted = list(names)
        found = self._own(wanted)
        if len(found) < len(wanted):
            found.update(self._timed_read([name for name in wanted if name not in found]))
        hits, misses = len(found), len(wanted) - len(found)
        self.counts.hits += hits
        self.counts.misses += misses
        return found

    def look(self, name: str, *, is_waiting: bool) -> tuple[bytes, bytes] | None:
        """Load like :meth:`load`, but count no miss: a further look. ``is_waiting``: as for :meth:`.Link.ask`."""
        found = self._own([name]) or self._read([name], is_waiting=is_waiting) or {}
        hits = len(found)
        self.counts.hits += hits
        return found.get(name)

    def look_at_own(self, name: str) -> tuple[bytes, bytes] | None:
        """Load what this process has not sent yet, like :meth:`look`, and ask no server."""
        found = self._own([name])
        self.counts.hits += len(found)
        return found.get(name)

    def _own(self, names: list[str]) -> dict[str, tuple[bytes, bytes]]:
        """Returns the entries that this process stored and has not sent yet."""
        kept = {name: self.unsent.value(name) for name in names}
        return {name: unseal(name, value, self._keys) for name, value in kept.items() if value is not None}

    def _timed_read(self, names: list[str]) -> dict[str, tuple[bytes, bytes]]:
        began_ns = time.perf_counter_ns()
        found = self._read(names)
        if found is None:
            return {}
        took_ns = time.perf_counter_ns() - began_ns
        self.counts.answers += 1
        self.counts.answers_ns += took_ns
        return found

    def _read(self, names: list[str], *, is_waiting: bool = False) -> dict[str, tuple[bytes, bytes]] | None:
        """Returns the entries that the server has, verified; ``None`` if there is no answer.

        An answer may take the longer the more of it is believed: garbage costs time, and saves no compilation.
        """
        unsent = self._unsent_of(names)
        found: dict[str, tuple[bytes, bytes]] = {}

        def receive(values: dict[str, bytes]) -> int:
            self.counts.bytes_read += sum(map(len, values.values()))
            found.update(self.believed(values, names, unsent))
            return sum(len(values[name]) for name in found)

        values = self.link.ask(lambda transport: _read(transport, names), receive, is_waiting=is_waiting)
        return None if values is None else found

    def offer(self, name: str, payload: bytes, record: Record) -> None:
        """Send an entry in the background. This process reads no other one until the server has taken it."""
        if not self.url.may_send:
            self.unsent.begin(name)
            return
        value = seal(name, payload, record, self._keys)
        record_bytes = len(value) - len(payload)
        if len(value) > LARGEST_VALUE_BYTES or record_bytes > LARGEST_RECORD_BYTES:  # which no reader believes
            self.unsent.begin(name)
            self.lose()
            most = f"{LARGEST_VALUE_BYTES} are the most, {LARGEST_RECORD_BYTES} of them metadata"
            what = f"entry {name[:16]} of {len(value)} bytes is not sent, since {most}"
            self.link.warn(f"{what}; each host compiles such a program", "large")
            return
        link, size_bytes = self.link, len(value)
        write = self.unsent.begin(name, value)
        send, lose = partial(self._send, name, write, value), partial(self._lose_put, write)
        link.sender().send(link, send, lose, size_bytes, done=self._note_put, name=name)

    def remove(self, name: str) -> None:
        """Remove an entry, behind own offers of it. Waits for that within this process's patience, and no longer.

        The wait behind other writes is charged only if the server does nothing meanwhile. If it does not take the
        removal, other processes may read the entry again, and that is counted.
        """
        write, is_over = self.unsent.begin(name), threading.Event()
        began: list[float] = []
        if not self.url.may_send:
            return

        def remove() -> bool:
            began.append(time.monotonic())
            was_removed = self.link.tell(lambda transport: transport.remove(name))
            if was_removed:
                self.unsent.confirm(name, write)
                is_over.set()
            return was_removed

        def lose() -> None:
            self.counts.lost_removals += 1
            is_over.set()

        sender = self.link.sender()
        sent_at, progress = time.monotonic(), sender.progress()
        sender.send(self.link, remove, lose, name=name, is_urgent=True)
        if not self.link.is_given_up():
            is_over.wait(self.link.patience.for_call())
            if not began and sender.progress() == progress:
                began.append(sent_at)
            if began:
                self.link.patience.charge(time.monotonic() - began[0], is_answered=name not in self.unsent)

    def turn(self, name: str, timeout_seconds: float | None, counts: Lookups) -> tuple[bytes, bytes] | RemoteTurn:
        """Returns the entry once another host stored it, or this process's turn: :func:`.turns.take_turn`."""
        return take_turn(self, name, timeout_seconds, counts=counts)

    def flush(self) -> None:
        """Send what waits, for five seconds at most and while the server answers; drop the rest."""
        self.link.flush()

    def close(self) -> None:
        """Flush, and close the connections. The store may be used again."""
        self.link.close()

    def _send(self, name: str, write: Write, value: bytes) -> bool:
        was_put = self.put(name, value)
        if was_put:
            self.unsent.confirm(name, write)
            self._read_back(name)
        return was_put

    def put(self, name: str, value: bytes) -> bool:
        """Send a value in the background. Returns whether the server took it."""
        size_bytes = len(value)
        failure = self.link.told(lambda transport: transport.put(name, value), size_bytes)
        if failure is None:
            self.counts.bytes_written += size_bytes
        elif failure.answer is Answer.REFUSED:
            self.counts.refused_puts += 1
        elif failure is not RESTING:
            self.unsent.doubt(name)  # what is on its way on a connection that another call closed may still arrive
        return failure is None

    def _read_back(self, name: str) -> None:
        """Warn once if the server, which answered that a read is denied, denies one of what it has just taken."""
        transport = self.link.transport
        if self._has_read_back or transport is None or not transport.denies_missing:
            return
        self._has_read_back = True
        found: list[bytes | None] = []
        if self.link.tell(lambda transport: found.append(transport.get(name))) and found == [None]:
            self.link.warn("it denies to read what it has taken; programs that it has are compiled again", READING)

    def _unsent_of(self, names: Iterable[str]) -> frozenset[str]:
        """Returns which names have a write on its way.

        To be asked before the server is: its answer may be from before that write, and come when it is confirmed.
        """
        return frozenset(name for name in names if name in self.unsent)

    def believed(
        self, values: dict[str, bytes], names: Collection[str], unsent: Collection[str] = ()
    ) -> dict[str, tuple[bytes, bytes]]:
        """Returns the answers under ``names`` that are whole and not replaced by own writes. Counts the others.

        ``unsent``: the names whose writes were on their way when the server was asked.
        """
        found = {name: self._believed(name, value, name in unsent) for name, value in values.items() if name in names}
        return {name: loaded for name, loaded in found.items() if loaded is not None}

    def _believed(self, name: str, value: bytes, was_unsent: bool) -> tuple[bytes, bytes] | None:
        try:
            payload, blob = unseal(name, value, self._keys)
        except RefusedEntryError:
            self.counts.refused_entries += 1
            return None
        except ValueError as error:
            self.counts.corrupt_entries += 1
            _log.debug("%s: an entry is not believed: %s", self.url.shown, error)
            return None
        if was_unsent or self.unsent.replaces(name, unpack(blob).created_ns):
            self.counts.stale_entries += 1
            return None
        return payload, blob

    def lose(self) -> None:
        """Count an entry that the server did not get."""
        self.counts.lost_puts += 1

    def _lose_put(self, write: Write) -> None:
        write.lose()
        self.lose()

    def _note_put(self) -> None:
        self.counts.puts += 1

    def snapshot(self) -> RemoteCounts:
        """Returns the counts as they are now."""
        return replace(self.counts)


def _read(transport: Transport, names: list[str]) -> dict[str, bytes]:
    if len(names) != 1:
        return transport.get_many(names)
    value = transport.get(names[0])
    return {} if value is None else {names[0]: value}
