# SPDX-License-Identifier: Apache-2.0
"""The daemon that keeps a directory, if there is one: so that an operator learns what a new policy leads to.

The daemon's lock is the proof, for ``daemon.json`` outlives a daemon that was killed. Not promised: that this is still
true when the caller prints it.
"""

from __future__ import annotations

from typing import Any, Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import Layout, ProcessLock, read_json

# A status is some 600 bytes, and 100 more for each daemon that stands by.
_LARGEST_STATUS_BYTES: Final = 65536


def keeper_of(layout: Layout) -> str | None:
    """Returns the daemon that keeps this directory, as ``pid 7 on host``; ``None`` if none does."""
    # In this order: without a status the lock is not touched, so that a daemon which is about to start finds it free.
    who = _read_who(layout)
    return who if who is not None and _is_locked(layout) else None


def read_status(layout: Layout) -> dict[str, Any]:
    """Returns the content of ``daemon.json``; empty if there is none, ``{"unreadable": True}`` if it is malformed."""
    try:
        return read_json(layout, layout.daemon_status, _LARGEST_STATUS_BYTES)
    except OSError:
        return {}
    except ValueError:
        return {"unreadable": True}


def _read_who(layout: Layout) -> str | None:
    status = read_status(layout)
    if not status:
        return None
    try:
        return f"pid {status['pid']} on {status['host']}"
    except KeyError:
        return "which one, its status does not say"


def _is_locked(layout: Layout) -> bool:
    lock = ProcessLock(layout.daemon_lock, 0.0, layout=layout)
    try:
        if not lock.try_acquire():
            return True
        lock.release()
    except (LockTimeoutError, OSError):
        return True  # locks do not work here; the status says that a daemon runs
    finally:
        lock.close()
    return False
