"""Consequences of failed calls: which breaker they open, and what is said of them, once.

Decides, by the kind of the answer (:class:`.servers.Answer`), whether the server lives: an answer, also a refusal,
closes the node's breaker, and only silence and broken connections open it. What concerns this process alone opens a
breaker of its own. Reads and writes are kept apart: a server that takes each write and fails each read helps nobody,
and a write that works must not hide that.
"""

from __future__ import annotations

import logging
from typing import Final

from lockcache.remote.servers import Answer, RemoteError
from lockcache.remote.wait_limits import Breaker, Patience

__all__ = ["READING", "SENDING", "Failures"]

_log = logging.getLogger("lockcache")

#: The directions of a call.
READING: Final = "reading"
SENDING: Final = "sending"
# What programs do without the answers that a server refuses.
_WITHOUT: Final = {
    READING: "programs that it refuses to read are compiled",
    SENDING: "what it refuses is not stored there",
}


class Failures:
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
        """Note a call that was not answered."""
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
