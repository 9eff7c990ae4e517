"""The queue of the writers that found no room: its head tries again, the others wait.

Keeps invariant 4 (nobody hangs) where writes in progress together exceed the cap. Writers whose reservations exclude
each other, and who all come again, meet again: of 64 writers of a third of the cap each on two cores hardly any got
through within a minute. One at a time, all of them do, in seconds.

Not promised: that it excludes anybody, or the order. The head decides when to try, never whether there is room. So
where no lock can be had (a network mount without them, a full disk), where the head is stopped, or where what it wants
is not to be had for long, the others try all the same.

Lock order: the queue's lock is taken without a shard lock held, and kept while taking one shard lock at a time.
"""

from __future__ import annotations

import random
import time
from typing import Final

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.folders import refuse_symlink

__all__ = ["RoomQueue"]

# Between two tries: about what writing a few MiB takes, at random, so that those who met do not meet again.
_LONGEST_PAUSE_SECONDS: Final = 0.02

# How long a writer waits to become the head before it tries without; each further time twice as long, up to a limit. A
# head needs milliseconds: this is met where it is stopped or wants much, or a hundred are in front.
_FIRST_PATIENCE_SECONDS: Final = 0.25
_LONGEST_PATIENCE_SECONDS: Final = 1.0


class RoomQueue:
    """One writer's place in the queue of its directory, from :meth:`wait` until :meth:`leave`."""

    __slots__ = ("_directory", "_is_head", "_patience_seconds")

    def __init__(self, directory: CacheDirectory) -> None:
        self._directory = directory
        self._patience_seconds = _FIRST_PATIENCE_SECONDS
        self._is_head = False

    def wait(self, deadline: float) -> None:
        """Wait until it is time to try again; not beyond ``deadline`` (monotonic seconds)."""
        if not self._is_head:
            self._is_head = self._become_head(deadline - time.monotonic())
            if self._is_head:
                return
        left_seconds = max(0.0, deadline - time.monotonic())
        time.sleep(min(left_seconds, random.uniform(0, _LONGEST_PAUSE_SECONDS)))

    def leave(self) -> None:
        """Make way for the next one; nothing for who is not the head."""
        if self._is_head:
            self._is_head = False
            self._directory.room_lock.release()

    def _become_head(self, left_seconds: float) -> bool:
        layout = self._directory.layout
        patience_seconds = max(0.0, min(self._patience_seconds, left_seconds))
        self._patience_seconds = min(self._patience_seconds * 2, _LONGEST_PATIENCE_SECONDS)
        try:
            for folder in (layout.own, layout.locks):
                refuse_symlink(folder)  # the other members of a group may have put one there
            self._directory.room_lock.acquire(patience_seconds)
        except OSError:
            return False
        return True
