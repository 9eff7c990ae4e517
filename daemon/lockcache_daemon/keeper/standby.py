"""Standing by: waiting for the daemon that keeps a directory to die, and being seen to wait.

Keeps invariant 5 across daemons: the lock of a killed one falls with it, so whoever asks for it next gets it; nobody
has to find out whether the holder lives. Asks without waiting, a few times a second (:data:`LOOK_SECONDS`; 2 us each,
on a file server one round trip): a thread in a blocking flock would learn of a death at once, and could neither be
stopped by a signal nor notice that the directory was replaced underneath.

Being free is only a reason to try: who opens the directory takes the lock for good, or finds that another was faster.
So two never keep a directory at once, however many stand by.

Each one that waits says so in a file of its own under ``lockcache/standby/``, which only informs. Not promised
(invariant 6): that daemons exclude each other where locks do not reach other hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from datetime import datetime, timezone
from typing import Any, Final

from lockcache.filestream.disk import (
    Owner,
    ProcessLock,
    is_alive,
    make_folder,
    myself,
    open_or_create,
    read_json,
    unlink_below,
    write_all,
)
from lockcache.lowlevel import Layout

__all__ = ["LOOK_SECONDS", "Standby", "read_standbys"]

#: Between two looks. A takeover within a second leaves three quarters of it to a busy machine and to opening.
LOOK_SECONDS: Final = 0.25

# How often one that waits says that it still does, and after how long of silence one of another host is taken to be
# dead. Those of this host are asked for by their process.
_SIGN_OF_LIFE_SECONDS: Final = 20.0
_SILENT_SECONDS: Final = 90.0

_FILE: Final = re.compile(r"([0-9a-f]{16})\.([0-9]{1,10})\.([0-9]{1,12})", re.ASCII)
_LARGEST_BYTES: Final = 1024
_WRITE: Final = os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Standby:
    """One directory that another daemon keeps. For one thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = ProcessLock(layout.daemon_lock, 0.0, layout=layout)
        owner = myself()
        self._file = os.path.join(_folder(layout), f"{owner.host}.{owner.pid}.{owner.start_seconds}")
        self._since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._due = 0.0

    def is_due(self) -> bool:
        """Say that we wait, and whether that has an end. Raises :class:`OSError` where that cannot be told."""
        is_free = self.is_free()
        if not is_free:
            with contextlib.suppress(OSError):  # a full disk keeps nobody from waiting, only from being seen to
                self.announce()
        return is_free

    def is_free(self) -> bool:
        """Whether nobody keeps the directory now. Raises :class:`OSError` where that cannot be told."""
        if not os.path.isdir(self._layout.own):
            return True  # deleted underneath; opening makes it anew
        if not self._lock.try_acquire():
            return False
        is_lost = self._lock.is_lost()
        self._lock.release()
        if is_lost:  # the directory was replaced: this lock is not what its keeper holds
            self._lock.close()
        return not is_lost

    def announce(self) -> None:
        """Say that we wait, if it is time to say it again. Raises :class:`OSError`."""
        if time.monotonic() < self._due:
            return
        body = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._since}
        make_folder(self._layout, _folder(self._layout))
        fd = open_or_create(self._layout, self._file, _WRITE)
        try:
            write_all(fd, json.dumps(body).encode() + b"\n")
        finally:
            os.close(fd)
        self._due = time.monotonic() + _SIGN_OF_LIFE_SECONDS

    def close(self) -> None:
        """Wait no longer. Raises nothing."""
        with contextlib.suppress(OSError):  # nobody misses it: who reads it asks whether its owner lives
            unlink_below(self._layout, self._file)
        self._lock.close()


def read_standbys(layout: Layout) -> list[dict[str, Any]]:
    """Who stands by: ``pid``, ``host`` and ``since`` of each. Removes what the dead left. Raises nothing."""
    waiting: list[dict[str, Any]] = []
    try:
        names = sorted(os.listdir(_folder(layout)))
    except OSError:
        return waiting
    for name in names:
        path = os.path.join(_folder(layout), name)
        with contextlib.suppress(OSError, ValueError):  # ended since, or just being written
            if _is_dead(name, path):
                unlink_below(layout, path)
            else:
                waiting.append(_read(layout, path))
    return waiting


def _is_dead(name: str, path: str) -> bool:
    match = _FILE.fullmatch(name)
    if match is None:
        return False
    lives = is_alive(Owner(match[1], int(match[2]), int(match[3])))
    return time.time() - os.lstat(path).st_mtime > _SILENT_SECONDS if lives is None else not lives


def _read(layout: Layout, path: str) -> dict[str, Any]:
    body = read_json(layout, path, _LARGEST_BYTES)
    return {key: body.get(key) for key in ("pid", "host", "since")}


def _folder(layout: Layout) -> str:
    return os.path.join(layout.own, "standby")
