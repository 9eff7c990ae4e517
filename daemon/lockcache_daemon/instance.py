"""One daemon for each directory, and its status for whoever asks.

Keeps invariant 5 for daemons: the lock is a flock on ``lockcache/daemon.lock``, so a killed daemon holds nothing and
needs no cleaning up. ``daemon.json`` only informs; that it exists proves nothing.

Not promised (invariant 6): that two daemons exclude each other across hosts where locks do not. Two do no harm, they
do the work twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from lockcache.errors import LockcacheError
from lockcache.filestream.layout import Layout
from lockcache.filestream.locks import ProcessLock
from lockcache.filestream.replace import replace_file

__all__ = ["AlreadyServedError", "Instance", "read_status"]

# A status is some 600 bytes, and 100 more for each daemon that stands by.
_LARGEST_STATUS_BYTES: Final = 65536


class AlreadyServedError(LockcacheError):
    """Another daemon keeps this directory; the message says who."""

    def __init__(self, root: str, holder: Mapping[str, Any]) -> None:
        super().__init__(f"{root} is kept by another lockcache-daemon: {_who(holder)}")
        self.path = root
        self.holder = dict(holder)


class Instance:
    """The right to keep one directory, from :meth:`acquire` to :meth:`release`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._lock = ProcessLock(layout.daemon_lock, 0.0)
        self._since = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def acquire(self) -> None:
        """Raises :class:`AlreadyServedError`."""
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
                os.unlink(self.layout.daemon_status)
        with contextlib.suppress(OSError):
            self._lock.release()
        self._lock.close()


def read_status(layout: Layout) -> dict[str, Any]:
    """The daemon's status; empty if there is none, or none that can be read."""
    try:
        fd = os.open(layout.daemon_status, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        status = json.loads(os.read(fd, _LARGEST_STATUS_BYTES))
    except (OSError, ValueError):
        return {}
    finally:
        os.close(fd)
    return status if isinstance(status, dict) else {}


def _who(holder: Mapping[str, Any]) -> str:
    if not holder:
        return f"who has not said yet who it is (look for its process: fuser {Layout('DIR').daemon_lock})"
    return f"pid {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"
