# SPDX-License-Identifier: Apache-2.0
"""Link: the calls of one process to one server, and what follows from those that fail.

Keeps invariant 7 (never take the job down): nothing raises, and the time of a server that does not answer is bounded
(:mod:`.wait_limits`). Decides, by the kind of the answer (:class:`.servers.Answer`), whether the server lives: an
answer, also a refusal, closes the node's breaker, and only silence and broken connections open it. What concerns this
process alone opens a breaker of its own. Reads and writes are kept apart: a server that takes each write and fails each
read helps nobody, and a write that works must not hide that.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from lockcache.fork import after_fork_in_child, unforked
from lockcache.remote.counters import RemoteCounts
from lockcache.remote.sending import Sender, do_nothing, sender_with
from lockcache.remote.servers import (
    Answer,
    RemoteError,
    RemoteUrl,
    Transport,
    call_within,
    more_seconds,
    open_transport,
)
from lockcache.remote.wait_limits import Breaker, Patience, patience_with

__all__ = ["READING", "RESTING", "Link"]

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

#: Why a call was not made.
RESTING: Final = RemoteError("it is not asked now")

#: The directions of a call.
READING: Final = "reading"
SENDING: Final = "sending"
# What programs do without the answers that a server refuses.
_WITHOUT: Final = {
    READING: "programs that it refuses to read are compiled",
    SENDING: "what it refuses is not stored there",
}


class Link:
    """The calls to one server. Any thread may make them; after a fork the child has connections of its own."""

    def __init__(self, url: RemoteUrl, counts: RemoteCounts, breaker: Breaker) -> None:
        """``breaker``: that of the node. ``counts.errors`` grows by the calls that fail."""
        self.url = url
        self.patience = patience_with(url.url)
        self.breaker = breaker
        self._counts = counts
        self._failures = _Failures(url.shown, breaker, self.patience)
        #: The connection, once there is one.
        self.transport: Transport | None = None
        self._inherited: list[Transport] = []
        # That of a large value which is being sent.
        self._transport_alone: Transport | None = None
        self._sender: Sender | None = None
        after_fork_in_child(self)
        # Of one that is collected before the process ends.
        weakref.finalize(self, self._failures.report_unanswered).atexit = False

    def sender(self) -> Sender:
        """Returns the sender, which works in the background."""
        sender = self._sender
        if sender is None:
            # Here, not in its thread: while the interpreter ends a client cannot be imported any more.
            with contextlib.suppress(RemoteError):
                self._opened()
            sender = self._join_sender()
        return sender

    def _join_sender(self) -> Sender:
        with unforked:  # in one step: a flush does not wait for what goes to another sender
            if self._sender is None:
                self._sender = sender_with(self.url.url, self.patience)
                self._sender.join(self)
            return self._sender

    def flush(self) -> None:
        """Send what waits, for five seconds at most and while the server answers; drop the rest."""
        if self._sender is not None and not self._sender.flush(self):
            self._sender.give_up(self)
        self.report_unanswered()

    def close(self) -> None:
        """Flush, and close the connections. The link may be used again."""
        self.flush()
        self.disconnect()
        self._sender = None  # whose thread ends with its last link

    def disconnect(self) -> None:
        """Close the connection, unless something is to be sent. The next call opens another one."""
        if self._sender is not None and self._sender.has_work(self):
            return
        transport, self.transport = self.transport, None
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
            answer, seconds = self._in_time(call, transport)
        except RemoteError as error:
            self.patience.charge(error.seconds, is_answered=error.answer is Answer.REFUSED)
            self._note_failure(error, transport, direction)
            return None
        size_bytes = 0 if receive is None else receive(answer)
        self.patience.has_believed |= size_bytes > 0
        if is_waiting or self.patience.charge(seconds, is_answered=True, more_seconds=more_seconds(size_bytes)):
            self._failures.note_success(direction)
        elif self.patience.is_over():
            self._failures.give_up("it is too slow to be worth waiting for")
        return answer

    def _in_time(self, call: Callable[[Transport], _T], transport: Transport) -> tuple[_T, float]:
        """Make a call that is waited for: the longer, the more of its answer comes from a server that is believed.

        Raises :class:`RemoteError`.
        """
        had_bytes = transport.arrived_bytes()

        def came_bytes() -> int:
            return transport.arrived_bytes() - had_bytes

        def more() -> float:
            return more_seconds(came_bytes()) if self.patience.has_believed else 0.0

        try:
            return call_within(self.patience.for_call(), partial(call, transport), more)
        except RemoteError as error:
            is_large = self.patience.has_believed and came_bytes() > _LARGE_BYTES
            if error.answer is not Answer.SILENT or not is_large:
                raise
            words = f"{came_bytes() / 1e6:.1f} MB of an entry came in {error.seconds:.1f} s, which is too slow"
            raise RemoteError(words, Answer.SLOW, seconds=error.seconds) from None

    def tell(self, call: Callable[[Transport], object], size_bytes: int = 0) -> bool:
        """Make a call in the background, which sends so many bytes. Returns whether the server took it."""
        return self.told(call, size_bytes) is None

    def told(self, call: Callable[[Transport], object], size_bytes: int = 0) -> RemoteError | None:
        """Make a call in the background, like :meth:`tell`. Returns why it failed; ``None`` if it did not."""
        return RESTING if self._rests() else self._tried(call, size_bytes)

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

    def received_bytes(self) -> int:
        """Returns how much the server's host has received, as far as that is known: a larger number is progress."""
        transports = self._transport_alone, self.transport
        return sum(transport.received_bytes() for transport in transports if transport is not None)

    def is_given_up(self) -> bool:
        """Returns whether this process does not ask the server now."""
        return any(breaker.is_open() for breaker in self._failures.breakers) or self.patience.is_over()

    def _rests(self) -> bool:
        """Returns whether the server is not to be asked now. Sends a probe in the background if it is due."""
        for breaker in self._failures.breakers:
            if breaker.is_open():
                if breaker.takes_probe():
                    self.sender().send(self, self._probe, do_nothing)
                return True
        return False

    def _probe(self) -> bool:
        return self._tried(lambda transport: transport.probe()) is None

    def _opened(self) -> Transport:
        transport = self.transport
        if transport is None:
            with unforked:
                transport = self.transport = self.transport or self._open(_SOCKET_SECONDS)
                if self.url.may_send:
                    self._join_sender().start()
        return transport

    def _open(self, seconds: float) -> Transport:
        with unforked:  # its client may be imported only now
            return open_transport(self.url, seconds)

    def _note_failure(
        self, error: RemoteError, transport: Transport | None, direction: str, *, is_alone: bool = False
    ) -> None:
        """Count a call that failed, of ``transport``, if one could be opened; ``is_alone``: no other call uses it."""
        self._counts.errors += 1
        if self._failures.note_answer(error, direction, is_own=transport is None) or transport is None:
            return
        if transport is self.transport:
            self.transport = None
        elif not (is_alone or error.answer in (Answer.SILENT, Answer.SLOW)):
            # Another call failed and aborted this one with it: that one was counted, and this one says nothing about
            # the server.
            return
        _abort(transport)
        self._failures.note_silence(error, direction)

    def report_unanswered(self) -> None:
        """Warn at the end of a program that was too short for the breaker to open."""
        self._failures.report_unanswered()

    def warn(self, words: str, kind: str) -> None:
        """Log what is wrong: as a warning the first time that this kind of thing is."""
        self._failures.warn(words, kind)

    def _after_fork_in_child(self) -> None:
        # The parent's connections are kept, unused: to close them could say something on them.
        if self.transport is not None:
            self._inherited.append(self.transport)
        self.transport = self._transport_alone = None
        self._failures.forget_unanswered()


class _Failures:
    """The failures of one process with one server."""

    def __init__(self, shown: str, breaker: Breaker, patience: Patience) -> None:
        """``shown``: the server's URL, for people. ``breaker``: that of the node."""
        self._shown = shown
        self._breaker = breaker
        self._patience = patience
        # For faults of this process alone, which do not concern the others of its node.
        self._own_breaker = Breaker()
        # The warnings that were given.
        self._warned: set[str] = set()
        # By direction: what the last call failed with, if none was answered since.
        self._unanswered: dict[str, str] = {}

    @property
    def breakers(self) -> tuple[Breaker, Breaker]:
        """Those that keep this process from asking."""
        return self._own_breaker, self._breaker

    def note_success(self, direction: str) -> None:
        """Note that a call did what it should."""
        self._unanswered.pop(direction, None)
        self._note_answer()

    def _note_answer(self) -> None:
        for breaker in self.breakers:
            breaker.note_success()

    def note_answer(self, error: RemoteError, direction: str, *, is_own: bool) -> bool:
        """Note a failure if it is an answer, or (``is_own``) this process's own. Returns whether it is."""
        _log.debug("%s: %s", self._shown, error)
        if error.answer is Answer.REFUSED:
            self._note_answer()
            self.warn(f"{error}; {_WITHOUT[direction]}", direction)
        elif error.answer is Answer.MISUSED or is_own:
            self._own_breaker.open()
            self.warn(f"{error}; this program goes on without it")
        else:
            return False
        return True

    def note_silence(self, error: RemoteError, direction: str) -> None:
        """Note a call that was not answered in time."""
        if error.answer is Answer.SLOW:
            self._note_answer()
            is_over = self._patience.is_over()
            what = "this program goes on without it" if is_over else "entries that are so large are compiled"
            self.warn(f"{error}; {what}", "" if is_over else "slow")
            return
        self._unanswered[direction] = str(error)
        # No answer: the next call would wait as long. A connection that is refused costs nothing to try again.
        self._breaker.note_failure(is_certain=error.answer is Answer.SILENT or self._patience.is_over())
        if self._breaker.is_open():
            self.warn(f"{error}; programs go on without it, and one of them asks it again in half a minute")

    def give_up(self, why: str) -> None:
        """Open the node's breaker."""
        self._breaker.open()
        self.warn(f"{why}; this program goes on without it")

    def report_unanswered(self) -> None:
        """Warn at the end of a program that was too short for the breaker to open."""
        for words in self._unanswered.values():
            if not self._warned:
                self.warn(f"{words}; this program went on without it")

    def forget_unanswered(self) -> None:
        """Forget what a parent reports, in a forked child."""
        self._unanswered = {}

    def warn(self, words: str, kind: str = "") -> None:
        """Log what is wrong: as a warning the first time that this kind of thing is, for debugging afterwards.

        Without a ``kind``: that this program goes on without the server, after which nothing else is reported.
        """
        level = logging.DEBUG if kind in self._warned or "" in self._warned else logging.WARNING
        self._warned.add(kind)
        _log.log(level, "%s: %s", self._shown, words)


def _abort(transport: Transport) -> None:
    try:
        transport.abort()
    except Exception as error:  # noqa: BLE001 - of a client library, while it is in use; nothing more is to be done
        _log.debug("a connection was not closed: %s", error)
