"""One daemon for each directory, and its status, ``daemon.json``, for other programs.

Keeps invariant 5 (death is free) for daemons: the lock is a flock on ``lockcache/daemon.lock``, so a killed daemon
holds nothing and needs no cleaning up. ``daemon.json`` only informs; that it exists proves nothing. A status goes to
disk after a sweep, and else at most every few seconds and only if its numbers changed, so that an idle daemon writes
nothing.

Not promised (invariant 6, locks coordinate): that two daemons exclude each other across hosts where locks do not. Two
do no harm, they do the work twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Final

from lockcache.filestream.disk import ProcessLock, refuse_symlink, replace_file, unlink_below
from lockcache.lowlevel import Layout, Policy, Slot, read_status
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.keeper.standby import read_standbys
from lockcache_daemon.observe import Sweep
from lockcache_daemon.settings import Watermarks

# Between two writes of a status whose numbers changed.
_INTERVAL_SECONDS: Final = 5.0


class Instance:
    """The right to keep one directory, from :meth:`acquire` to :meth:`release`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._lock = ProcessLock(layout.daemon_lock, 0.0, layout=layout)
        self._since = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def acquire(self) -> None:
        """Raises :class:`AlreadyServedError`, and :class:`OSError` where the lock may not or cannot be opened."""
        refuse_symlink(self.layout.own)
        if not self._lock.try_acquire():
            raise AlreadyServedError(self.layout.root, read_status(self.layout))

    def is_lost(self) -> bool:
        """Whether the directory was deleted or replaced underneath, so that another daemon may be keeping it."""
        return self._lock.is_lost()

    def publish(self, status: Mapping[str, Any]) -> None:
        """Put a status into ``daemon.json``, with who and since when. Raises :class:`OSError`."""
        body = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._since, **status}
        replace_file(self.layout, self.layout.daemon_status, json.dumps(body).encode() + b"\n", fsync=False)

    def release(self) -> None:
        """Let go of the directory, and of the status unless it may be somebody else's by now. Raises nothing."""
        with contextlib.suppress(OSError):  # a directory that is gone or stale keeps no lock
            if not self._lock.is_lost():
                refuse_symlink(self.layout.own)  # it may stand there since, also below a private root
                unlink_below(self.layout, self.layout.daemon_status)
        with contextlib.suppress(OSError):
            self._lock.release()
        self._lock.close()


class Status:
    """The running totals of one directory."""

    def __init__(self) -> None:
        self._totals = {"sweeps": 0, "evicted_entries": 0, "evicted_bytes": 0}
        self._last_sweep: dict[str, Any] | None = None
        self._published: dict[str, Any] | None = None
        self._due = 0.0
        #: Fields of others, as they are now.
        self.more: dict[str, Any] = {}

    def count(self, sweep: Sweep) -> None:
        """Add a sweep. It is published at once."""
        self._totals["sweeps"] += 1
        self._totals["evicted_entries"] += sweep.evicted_entries
        self._totals["evicted_bytes"] += sweep.evicted_bytes
        self._last_sweep = {"time": datetime.now(timezone.utc).isoformat(timespec="seconds"), **asdict(sweep)}
        self._due = 0.0

    def publish(
        self,
        instance: Instance,
        layout: str,
        policy: Policy,
        marks: Watermarks | None,
        held: Callable[[], Slot],
        *,
        at_once: bool = False,
    ) -> None:
        """Write the status, if it is due and says something new. ``held`` is asked only then."""
        if at_once or time.monotonic() >= self._due:
            body = {"role": "active", "layout": layout, "standbys": read_standbys(instance.layout)}
            body |= self._render(policy, marks, held())
            if at_once or self._is_news(body):
                self._due = 0.0  # if it fails, it is tried at the next tick, not taken for written until it is due
                instance.publish(body)
                self._published = body
                self._due = time.monotonic() + _INTERVAL_SECONDS

    def _render(self, policy: Policy, marks: Watermarks | None, held: Slot) -> dict[str, Any]:
        return {
            "max_size_bytes": policy.max_size_bytes,
            "low_bytes": marks and marks.low_bytes,
            "high_bytes": marks and marks.high_bytes,
            "bytes": held.bytes,
            "entries": held.entries,
            **self._totals,
            "last_sweep": self._last_sweep,
            **self.more,
        }

    def _is_news(self, body: dict[str, Any]) -> bool:
        """Whether ``body`` differs from what was published. If not, the question is put off for a while."""
        self._due = time.monotonic() + _INTERVAL_SECONDS
        return body != self._published
