"""The queue of the writers that found no room: its head tries again, the others wait.

Keeps invariant 4 (nobody hangs) where writes in progress together exceed the cap. Writers whose reservations exclude
each other, and who all come again, meet again: of 64 writers of a third of the cap each on two cores hardly any got
through within a minute. One at a time, all of them do, in a second.

Not promised: that it excludes anybody, or the order. The head decides when to try, never whether there is room. So
where no lock can be had (a network mount without them, a full disk) or the head is stopped, writers try all the same.

Lock order: the queue's lock is taken without a shard lock held, and kept while taking one shard lock at a time.
"""

from __future__ import annotations

import random
import time
from typing import Final

from lockcache.filestream.folders import refuse_symlink
from lockcache.filestream.layout import Layout
from lockcache.filestream.locks import ProcessLock

__all__ = ["RoomQueue"]

# Before each try: about what writing a few MiB takes, at random, so that those who met where there is no head do not
# meet again.
_LONGEST_PAUSE_SECONDS: Final = 0.02

# How long a writer waits to become the head before it tries without; each further time twice as long. A write takes
# milliseconds: this is met where the head is stopped, or hundreds are in front.
_FIRST_PATIENCE_SECONDS: Final = 1.0


class RoomQueue:
    """One writer's place in the queue of its directory, from the first :meth:`wait` until :meth:`leave`."""

    __slots__ = ("_is_head", "_layout", "_lock", "_patience_seconds")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = ProcessLock(layout.room_lock, _FIRST_PATIENCE_SECONDS)
        self._patience_seconds = _FIRST_PATIENCE_SECONDS
        self._is_head = False

    def wait(self, deadline: float) -> bool:
        """Wait until it is time to try again; ``False`` if there is none before ``deadline`` (monotonic seconds)."""
        if not self._is_head:
            self._is_head = self._become_head(deadline)
        if time.monotonic() >= deadline:
            return False
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
        return True

    def leave(self) -> None:
        """Make way for the next one."""
        if self._is_head:
            self._is_head = False
            self._lock.release()
        self._lock.close()

    def _become_head(self, deadline: float) -> bool:
        patience_seconds = min(self._patience_seconds, max(0.0, deadline - time.monotonic()))
        self._patience_seconds *= 2
        try:
            for folder in (self._layout.own, self._layout.locks):
                refuse_symlink(folder)  # the other members of a group may have put one there
            self._lock.acquire(patience_seconds)
        except OSError:
            return False
        return True
