# SPDX-License-Identifier: Apache-2.0
"""Holds: what one thread has and no other, given back however its holder is left.

Keeps invariant 5 (death is free) for interrupts: an exception that a signal handler raises between any two steps of
Python leaves nothing taken. A hold is an object. Once nothing refers to it, the interpreter calls back, and where an
interrupt cut that short, the next one that wants what it held takes over.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from typing import Final, Protocol, TypeAlias

Mark: TypeAlias = "weakref.ref[Hold]"

# Looked up once, for the write path.
_get_ident = threading.get_ident


class Lockable(Protocol):
    """An object that can be held. Keeps the mark of its holder under ``None`` in a dict."""

    def give_back(self, mark: Mark) -> None:
        """Take a mark out of the dict, if it is there: for the release."""

    def recover(self, mark: Mark) -> None:
        """Do the same for a holder that is gone without a release. The interpreter calls this; exceptions are lost."""


class Hold:
    """A thread's hold on what no other thread has: for as long as this object lives, or until :meth:`release`."""

    __slots__ = ("__weakref__", "_lock", "mark", "thread")

    def __init__(self, lock: Lockable) -> None:
        """Hold nothing yet: this holds once its mark is the one that ``holders.setdefault(None, hold.mark)`` returns.

        That is one step: whose it is is seen in what stands there, and not in a flag that is set afterwards.
        """
        self._lock = lock
        #: Stands among the holders in the place of this, without keeping it alive.
        self.mark = weakref.ref(self, lock.recover)
        self.thread = _get_ident()

    def release(self) -> None:
        """Give the lock back. Does nothing for one that was given back."""
        self._lock.give_back(self.mark)
        # Last: if an interrupt cuts this short, the mark's callback does it once this object is gone. And without the
        # mark there is no callback in which an interrupt could come and be lost.
        self.mark = _NO_MARK


class _Nothing:
    def give_back(self, mark: Mark) -> None:
        pass

    recover = give_back


_NO_MARK: Final[Mark] = weakref.ref(Hold(_Nothing()))


def _is_left(mark: Mark | None) -> bool:
    """Returns whether the holder of a mark is gone, or has another mark by now."""
    if mark is None:
        return False
    holder = mark()
    return holder is None or holder.mark is not mark


class OneHolder(ABC):
    """A thing that at most one thread of this process has. A subclass gives it back (:class:`Lockable`)."""

    # One mark or none. Not a threading.Lock, whose holder is not known: an interrupt between its taking and the next
    # step would leave it taken for ever, and a signal handler that wants it would wait for the thread that it stopped.
    _holders: dict[None, Mark]
    # The heirs of holders that are gone without a release, see :meth:`_succeed`: by the id of the old holder's mark,
    # that mark (so that no other object gets its id) and the heir's mark.
    _heirs: dict[int, tuple[Mark, Mark]]

    @abstractmethod
    def give_back(self, mark: Mark) -> None:
        """Give it back, if it is the mark's."""

    def recover(self, _: Mark) -> None:
        """Release for a holder that is gone without a release: the interpreter calls this when it drops one.

        An exception in here is lost, and what was begun is left to the next one: to the callback of our own hold, or
        to the next one that wants the lock.
        """
        if _is_left(self._holders.get(None)):
            hold = Hold(self)
            try:
                self._succeed(hold)
            finally:
                hold.release()

    def _succeed(self, hold: Hold) -> bool:
        """Take over from a holder that is gone without release. Returns whether ``hold`` has the lock now.

        Several may want to: the callback of the holder that is gone, in whatever thread dropped it, and all who want
        the lock. Each of them may itself be interrupted anywhere. So a mark that is left has one heir, the first to
        come (``setdefault`` is one step), and if that one is left too, it has one. Who is last in this line has the
        lock, once the first mark is replaced by its own. Nobody else can do that: nobody is behind the last one, and
        of who was too slow, and became heir of a mark after it was dealt with, the first mark is not there any more.
        """
        first = mark = self._holders.get(None)
        while mark is not hold.mark:
            if mark is None or not _is_left(mark):
                return False
            mark = self._heirs.setdefault(id(mark), (mark, hold.mark))[1]
        if self._holders.get(None) is not first:
            return False
        self._holders[None] = hold.mark
        self._heirs.clear()  # while we have the lock: no line leads anywhere
        return True
