"""RemoteStore: the entries of one server, as one process sees them.

Keeps invariant 1 (a hit is whole): each answer is verified (:mod:`.sealing`), and what fails is a counted miss. A
process that stored or removed an entry reads no other one until the server has taken that (:mod:`.node_state`). Keeps
invariant 7 (never take the job down): nothing raises, and the time of a server that does not answer is bounded
(:mod:`.wait_limits`).

Not promised: that another process sees a write before it is sent, or after it was lost.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from lockcache.filestream.entry import KeyRing, Record, RefusedEntryError, unpack
from lockcache.fork import after_fork_in_child, unforked
from lockcache.remote.failures import READING, SENDING, Failures
from lockcache.remote.node_state import BoundedNames, UnsentWrites
from lockcache.remote.sealing import seal, unseal
from lockcache.remote.sending import Sender, do_nothing
from lockcache.remote.servers import (
    LARGEST_VALUE_BYTES,
    Answer,
    RemoteError,
    RemoteUrl,
    Transport,
    call_within,
    open_transport,
)
from lockcache.remote.turns import Lookups, RemoteTurn, take_turn
from lockcache.remote.wait_limits import Breaker, patience_with

__all__ = ["RemoteCounts", "RemoteStore"]

_T = TypeVar("_T")
_log = logging.getLogger("lockcache")

# The timeout of one read of a socket, or of one write to it. Longer than any wait for an answer, and short enough for
# threads that are left behind.
_SOCKET_SECONDS: Final = 2.0
# The timeout of a call in the background, for which no one waits.
_BACKGROUND_SECONDS: Final = 5.0
# The rate of a slow link, by which a value that is sent in the background may take longer.
_SLOWEST_BYTES_PER_SECOND: Final = 1e6
# A longer value gets a connection of its own, with more time.
_LARGE_BYTES: Final = 1_000_000

_RESTING: Final = RemoteError("it is not asked now")


@dataclass
class RemoteCounts:
    """The counts of one store since it was made."""

    hits: int = 0
    misses: int = 0
    #: Entries that the server took.
    puts: int = 0
    #: Entries that it did not get: it refused them or was dead, too much waited, or the process ended.
    lost_puts: int = 0
    #: Calls that failed, of whatever kind.
    errors: int = 0
    #: Answers that no writer had stored under that key. Each was a miss.
    corrupt_entries: int = 0
    #: Answers that are signed where there is no key for them, or not signed where there is one.
    refused_entries: int = 0
    #: Answers that this process had replaced or removed before. Each was a miss.
    stale_entries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    #: Lookups that were answered, and the time that they took together, in ns.
    answers: int = 0
    answers_ns: int = 0
    #: Entries that were fetched because a manifest lists them. Not among the hits.
    prefetched: int = 0
    #: Among ``hits``: look-ups that waited until another host had compiled.
    waits: int = 0
    #: Entries that it may still have although they were removed here: it did not answer in time.
    lost_removals: int = 0
    #: Among ``lost_puts``: entries that it refused.
    refused_puts: int = 0


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
        self.patience = patience_with(url.url)
        self.breaker = Breaker() if breaker is None else breaker
        self._failures = Failures(url.shown, self.breaker, self.patience)
        self.unsent = UnsentWrites()
        #: The names that this process removed, and has not stored since: a copy on its way must not bring them back.
        self.removed = BoundedNames()
        self._keys = keys
        self._transport: Transport | None = None
        self._inherited: list[Transport] = []
        # That of a large value which is being sent.
        self._transport_alone: Transport | None = None
        self._sender: Sender | None = None
        self._has_read_back = False
        after_fork_in_child(self)

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns payload and record of an entry, verified; ``None`` for a miss, of whatever cause."""
        return self.load_many([name]).get(name)

    def load_many(self, names: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Returns the entries that the server has, verified, in one call."""
        wanted = list(names)
        began_ns = time.perf_counter_ns()
        found = self._read(wanted)
        if found is not None:
            took_ns = time.perf_counter_ns() - began_ns
            self.counts.answers += 1
            self.counts.answers_ns += took_ns
        found = found or {}
        hits, misses = len(found), len(wanted) - len(found)
        self.counts.hits += hits
        self.counts.misses += misses
        return found

    def look(self, name: str, *, is_waiting: bool) -> tuple[bytes, bytes] | None:
        """Load like :meth:`load`, but count no miss: this is a further look. ``is_waiting``: as for :meth:`ask`."""
        found = self._read([name], is_waiting=is_waiting) or {}
        hits = len(found)
        self.counts.hits += hits
        return found.get(name)

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

        values = self.ask(lambda transport: _read(transport, names), receive, is_waiting=is_waiting)
        return None if values is None else found

    def offer(self, name: str, payload: bytes, record: Record) -> None:
        """Send an entry in the background. This process reads no other one until the server has taken it."""
        serial = self.unsent.begin(name)
        self.removed.discard(name)
        if not self.url.may_send:
            return
        value = seal(name, payload, record, self._keys)
        if len(value) > LARGEST_VALUE_BYTES:
            self.lose()
            what = f"entry {name[:16]} of {len(value)} bytes is not sent, since {LARGEST_VALUE_BYTES} are the most"
            self._failures.warn(f"{what}; each host compiles such a program", "large")
            return
        self.sender().send(partial(self._send, name, serial, value), self.lose, len(value))

    def remove(self, name: str) -> None:
        """Remove an entry, behind own offers of it. Waits for that within this process's patience, and no longer.

        If the server does not take it, other processes may read the entry again, and that is counted.
        """
        serial, is_over = self.unsent.begin(name), threading.Event()
        began = time.monotonic()
        self.removed.add(name)
        if not self.url.may_send:
            return

        def remove() -> bool:
            was_removed = self.tell(lambda transport: transport.remove(name))
            if was_removed:
                self.unsent.confirm(name, serial)
                is_over.set()
            return was_removed

        def lose() -> None:
            self.counts.lost_removals += 1
            is_over.set()

        self.sender().send(remove, lose)
        if not self.is_given_up():
            is_over.wait(self.patience.for_call())
            self.patience.charge(time.monotonic() - began, is_answered=name not in self.unsent)

    def turn(self, name: str, timeout_seconds: float | None, counts: Lookups) -> tuple[bytes, bytes] | RemoteTurn:
        """Returns the entry once another host stored it, or this process's turn: :func:`.turns.take_turn`."""
        return take_turn(self, name, timeout_seconds, counts=counts)

    def sender(self) -> Sender:
        """Returns the sender, which works in the background."""
        sender = self._sender
        if sender is None:
            # Here, not in its thread: while the interpreter ends a client cannot be imported any more.
            with contextlib.suppress(RemoteError):
                self._opened()
            sender = self._make_sender()
        return sender

    def _make_sender(self) -> Sender:
        with unforked:  # one for all threads: a flush would not wait for what a second one sends
            if self._sender is None:
                self._sender = Sender(self.patience, self._received_bytes, self._failures.report_unanswered)
            return self._sender

    def flush(self) -> None:
        """Send what waits, for five seconds at most and while the server answers; drop the rest."""
        if self._sender is not None and not self._sender.flush():
            self._sender.give_up()
        self._failures.report_unanswered()

    def close(self) -> None:
        """Flush, and close the connections. The store may be used again."""
        self.flush()
        transport, self._transport = self._transport, None
        if transport is not None:
            _abort(transport)

    def ask(
        self,
        call: Callable[[Transport], _T],
        receive: Callable[[_T], int] | None = None,
        *,
        is_waiting: bool = False,
        changes: bool = False,
    ) -> _T | None:
        """Returns the server's answer; ``None`` if it is not to be asked or does not answer in time. Raises nothing.

        ``receive``: takes the answer, and returns how many bytes of it were worth waiting for. ``is_waiting``: the
        caller waits for another node, so that an answer that is slow costs it nothing. ``changes``: the call is one
        that a server may refuse which may only be read.
        """
        direction = SENDING if changes else READING
        if self._rests():
            return None
        if self.patience.is_over():
            return None
        transport = None
        try:
            transport = self._opened()
            answer, seconds = call_within(self.patience.for_call(), partial(call, transport))
        except RemoteError as error:
            self.patience.charge(error.seconds, is_answered=error.answer is Answer.REFUSED)
            self._note_failure(error, transport, direction)
            return None
        size_bytes = 0 if receive is None else receive(answer)
        if is_waiting or self.patience.charge(seconds, is_answered=True, received_bytes=size_bytes):
            self._failures.note_success(direction)
        elif self.patience.is_over():
            self._failures.give_up("it is too slow to be worth waiting for")
        return answer

    def _send(self, name: str, serial: int, value: bytes) -> bool:
        was_put = self.put(name, value)
        if was_put:
            self.unsent.confirm(name, serial)
            self._read_back(name)
        return was_put

    def put(self, name: str, value: bytes) -> bool:
        """Send a value in the background. Returns whether the server took it."""
        size_bytes = len(value)
        failure = self._told(lambda transport: transport.put(name, value), size_bytes)
        if failure is None:
            self.counts.puts += 1
            self.counts.bytes_written += size_bytes
        elif failure.answer is Answer.REFUSED:
            self.counts.refused_puts += 1
        elif failure is not _RESTING:
            self.unsent.doubt(name)  # what is on its way on a connection that another call closed may still arrive
        return failure is None

    def _read_back(self, name: str) -> None:
        """Warn once if the server, which answered that a read is denied, denies one of what it has just taken."""
        transport = self._transport
        if self._has_read_back or transport is None or not transport.denies_missing:
            return
        self._has_read_back = True
        found: list[bytes | None] = []
        if self.tell(lambda transport: found.append(transport.get(name))) and found == [None]:
            self._failures.warn("it denies to read what it has taken; programs that it has are compiled again", READING)

    def tell(self, call: Callable[[Transport], object], size_bytes: int = 0) -> bool:
        """Make a call in the background, which sends so many bytes. Returns whether the server took it."""
        return self._told(call, size_bytes) is None

    def _told(self, call: Callable[[Transport], object], size_bytes: int = 0) -> RemoteError | None:
        return _RESTING if self._rests() else self._tried(call, size_bytes)

    def _tried(self, call: Callable[[Transport], object], size_bytes: int = 0) -> RemoteError | None:
        """Make a call in the background. Returns why it failed; ``None`` if it did not."""
        transport, is_large = None, size_bytes > _LARGE_BYTES
        longer_seconds = size_bytes / _SLOWEST_BYTES_PER_SECOND
        try:
            if is_large:
                transport = self._transport_alone = self._open(_SOCKET_SECONDS + longer_seconds)
            else:
                transport = self._opened()
            call_within(_BACKGROUND_SECONDS + longer_seconds, partial(call, transport))
        except RemoteError as error:
            self._note_failure(error, transport, SENDING, is_alone=is_large)
            return error
        finally:
            if is_large and transport is not None:
                self._transport_alone = None
                _abort(transport)
        self._failures.note_success(SENDING)
        return None

    def _received_bytes(self) -> int:
        """Returns how much the server's host has received, as far as that is known: a larger number is progress."""
        transports = self._transport_alone, self._transport
        return sum(transport.received_bytes() for transport in transports if transport is not None)

    def is_given_up(self) -> bool:
        """Returns whether this process does not ask the server now."""
        return any(breaker.is_open() for breaker in self._failures.breakers) or self.patience.is_over()

    def _rests(self) -> bool:
        """Returns whether the server is not to be asked now. Sends a probe in the background if it is due."""
        for breaker in self._failures.breakers:
            if breaker.is_open():
                if breaker.takes_probe():
                    self.sender().send(self._probe, do_nothing)
                return True
        return False

    def _probe(self) -> bool:
        return self._tried(lambda transport: transport.probe()) is None

    def _opened(self) -> Transport:
        transport = self._transport
        if transport is None:
            with unforked:
                transport = self._transport = self._transport or self._open(_SOCKET_SECONDS)
                if self.url.may_send:
                    self._make_sender().start()
        return transport

    def _open(self, seconds: float) -> Transport:
        with unforked:  # its client may be imported only now
            return open_transport(self.url, seconds)

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

    def _note_failure(
        self, error: RemoteError, transport: Transport | None, direction: str, *, is_alone: bool = False
    ) -> None:
        """Count a call that failed, of ``transport``, if one could be opened; ``is_alone``: no other call uses it."""
        self.counts.errors += 1
        if self._failures.note_answer(error, direction, is_own=transport is None) or transport is None:
            return
        if transport is self._transport:
            self._transport = None
        elif not (is_alone or error.answer is Answer.SILENT):
            # Another call failed and aborted this one with it: that one was counted, and this one says nothing about
            # the server.
            return
        _abort(transport)
        self._failures.note_silence(error, direction)

    def lose(self) -> None:
        """Count an entry that the server did not get."""
        self.counts.lost_puts += 1

    def snapshot(self) -> RemoteCounts:
        """Returns the counts as they are now."""
        return replace(self.counts)

    def _after_fork_in_child(self) -> None:
        # The parent's connections are kept, unused: to close them could say something on them.
        if self._transport is not None:
            self._inherited.append(self._transport)
        self._transport = self._transport_alone = None
        self._failures.forget_unanswered()


def _read(transport: Transport, names: list[str]) -> dict[str, bytes]:
    if len(names) != 1:
        return transport.get_many(names)
    value = transport.get(names[0])
    return {} if value is None else {names[0]: value}


def _abort(transport: Transport) -> None:
    try:
        transport.abort()
    except Exception as error:  # noqa: BLE001 - of a client library, while it is in use; nothing more is to be done
        _log.debug("a connection was not closed: %s", error)
