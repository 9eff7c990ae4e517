# SPDX-License-Identifier: Apache-2.0
"""Single instance: one daemon for each directory, by its lock; daemons that stand by; its status, ``daemon.json``.

Keeps invariant 5 (death is free) for daemons: the lock is a flock on ``lockcache/daemon.lock``, so a killed daemon
holds nothing and needs no cleaning up; the next daemon that asks for the lock gets it, without finding out whether the
holder lives. ``daemon.json`` only informs; its existence proves nothing. A status goes to disk after a sweep, and else
at most every few seconds and only if its numbers changed, so that an idle daemon writes nothing.

A daemon that stands by tries the lock without waiting, a few times a second (:data:`LOOK_SECONDS`; 2 us each, on a file
server one round trip): a thread in a blocking flock would learn of a death at once, and could neither be stopped by a
signal nor notice that the directory was replaced. A free lock is only a reason to try: opening the directory takes the
lock for good, or finds that another daemon was faster. So two daemons never keep a directory at once, however many
stand by.

Not promised (invariant 6, locks coordinate): that two daemons exclude each other across hosts where locks do not. Two
daemons do no harm; they do the work twice.
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

from lockcache.filestream.disk import ProcessLock, refuse_symlink, replace_file
from lockcache.lowlevel import Layout, Policy, Slot, read_status
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.observe import Sweep
from lockcache_daemon.settings import Watermarks

# Between two writes of a status whose numbers changed.
_INTERVAL_SECONDS: Final = 5.0

#: Between two tries of a standby. A takeover within a second leaves three quarters of it to opening, on a busy machine.
LOOK_SECONDS: Final = 0.25


class Instance:
    """The right to keep one directory, from :meth:`acquire` to :meth:`release`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._lock = ProcessLock(layout.daemon_lock, 0.0, layout=layout)
        self._since = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def acquire(self) -> None:
        """Take the lock.

        Raises :class:`AlreadyServedError`, and :class:`OSError` where the lock may not or cannot be opened.
        """
        refuse_symlink(self.layout.own)
        if not self._lock.try_acquire():
            raise AlreadyServedError(self.layout.root, read_status(self.layout))

    def is_lost(self) -> bool:
        """Returns whether the directory was deleted or replaced, so that another daemon may be keeping it."""
        return self._lock.is_lost()

    def publish(self, status: Mapping[str, Any]) -> None:
        """Put a status into ``daemon.json``, with our pid, host and start time. Raises :class:`OSError`."""
        body = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._since, **status}
        replace_file(self.layout, self.layout.daemon_status, json.dumps(body).encode() + b"\n", fsync=False)

    def release(self) -> None:
        """Release the lock, and remove the status unless it may be another daemon's by now. Raises nothing."""
        with contextlib.suppress(OSError):  # a directory that is gone or stale keeps no lock
            if not self._lock.is_lost():
                refuse_symlink(self.layout.own)  # somebody may have put one there since, also below a private root
                self.layout.reach.unlink(self.layout.daemon_status)
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
        #: Fields from other parts of the keeper, as they are now.
        self.more: dict[str, Any] = {}

    def count(self, sweep: Sweep) -> None:
        """Add a sweep. The status is then due at once."""
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
        """Write the status, if it is due and has changed. ``held`` is called only if it is due."""
        if at_once or time.monotonic() >= self._due:
            body = {"layout": layout, **self._render(policy, marks, held())}
            if at_once or self._is_changed(body):
                self._due = 0.0  # a write that fails is tried again at the next tick
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

    def _is_changed(self, body: dict[str, Any]) -> bool:
        """Returns whether ``body`` differs from what was published. If not, puts off the next comparison."""
        self._due = time.monotonic() + _INTERVAL_SECONDS
        return body != self._published


class Standby:
    """One directory that another daemon keeps. For one thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = ProcessLock(layout.daemon_lock, 0.0, layout=layout)

    def is_free(self) -> bool:
        """Returns whether no daemon keeps the directory now. Raises :class:`OSError` where that is not known."""
        refuse_symlink(self._layout.own)  # else the lock would be made, and taken, wherever the symlink leads
        if not os.path.isdir(self._layout.own):
            return True  # the directory was deleted; opening makes it again
        if not self._lock.try_acquire():
            return False
        is_lost = self._lock.is_lost()
        self._lock.release()
        if is_lost:  # the directory was replaced: this lock is not what its keeper holds
            self._lock.close()
        return not is_lost

    def close(self) -> None:
        """Stop waiting. Raises nothing."""
        self._lock.close()
