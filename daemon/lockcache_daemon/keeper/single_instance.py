"""Single instance: one daemon for each directory, by its lock; the daemons that stand by; its status, ``daemon.json``.

Keeps invariant 5 (death is free) for daemons: the lock is a flock on ``lockcache/daemon.lock``, so a killed daemon
holds nothing and needs no cleaning up; the next daemon that asks for the lock gets it, without finding out whether the
holder lives. ``daemon.json`` only informs; its existence proves nothing. A status goes to disk after a sweep, and else
at most every few seconds and only if its numbers changed, so that an idle daemon writes nothing.

A daemon that stands by tries the lock without waiting, a few times a second (:data:`LOOK_SECONDS`; 2 us each, on a file
server one round trip): a thread in a blocking flock would learn of a death at once, and could neither be stopped by a
signal nor notice that the directory was replaced. A free lock is only a reason to try: opening the directory takes the
lock for good, or finds that another daemon was faster. So two daemons never keep a directory at once, however many
stand by.

Each daemon that waits has a file of its own under ``lockcache/standby/``, which only informs. Other members of a group
can put anything there, so the folder is reached by descriptors, without following symlinks; only plain files with our
names are read and removed, as many as a status has room for; and a file is always written as a new one.

Not promised (invariant 6, locks coordinate): that two daemons exclude each other across hosts where locks do not. Two
daemons do no harm; they do the work twice. Nor that a waiting daemon is listed next to a thousand planted files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import islice
from typing import Any, Final

from lockcache.filestream.disk import (
    READ,
    Owner,
    ProcessLock,
    is_alive,
    make_folder,
    myself,
    open_folder,
    parse_json,
    refuse_symlink,
    replace_file,
    share_file,
    unlink_below,
    write_all,
)
from lockcache.lowlevel import Layout, Policy, Slot, read_status
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.observe import Sweep
from lockcache_daemon.settings import Watermarks

# Between two writes of a status whose numbers changed.
_INTERVAL_SECONDS: Final = 5.0

#: Between two tries of a standby. A takeover within a second leaves three quarters of it to opening, on a busy machine.
LOOK_SECONDS: Final = 0.25

# How often a waiting daemon renews its file, and after how much silence a daemon of another host is taken to be dead.
# For a daemon of this host, its process says whether it lives.
_HEARTBEAT_SECONDS: Final = 20.0
_SILENT_SECONDS: Final = 90.0

_FILE: Final = re.compile(r"([0-9a-f]{16})\.([0-9]{1,10})\.([0-9]{1,12})", re.ASCII)
_LARGEST_BYTES: Final = 1024
# The most names that one listing goes through, and the most daemons that it returns: it is done every few seconds.
_MOST_NAMES: Final = 1024
_MOST_LISTED: Final = 64
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


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
            body = {"role": "active", "layout": layout, "standbys": read_standbys(instance.layout)}
            body |= self._render(policy, marks, held())
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
        owner = myself()
        self._name = f"{owner.host}.{owner.pid}.{owner.start_ticks}"
        self._since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._due = 0.0

    def is_due(self) -> bool:
        """Announce that we wait, unless the directory is free. Returns whether it is free.

        Raises :class:`OSError` where that is not known.
        """
        is_free = self.is_free()
        if not is_free:
            with contextlib.suppress(OSError):  # on a full disk a daemon waits without being listed
                self.announce()
        return is_free

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

    def announce(self) -> None:
        """Write the file that says that we wait, if it is due. Raises :class:`OSError`."""
        if time.monotonic() < self._due:
            return
        body = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._since}
        make_folder(self._layout, _path(self._layout))
        with _opened(self._layout) as folder_fd:
            _write(folder_fd, self._name, json.dumps(body).encode() + b"\n")
        self._due = time.monotonic() + _HEARTBEAT_SECONDS

    def close(self) -> None:
        """Stop waiting, and remove our file. Raises nothing."""
        # Without our file nothing is lost: its readers ask whether its owner lives.
        with contextlib.suppress(OSError), _opened(self._layout) as folder_fd:
            os.unlink(self._name, dir_fd=folder_fd)
        self._lock.close()


def read_standbys(layout: Layout) -> list[dict[str, Any]]:
    """Returns ``pid``, ``host`` and ``since`` of each daemon that stands by. Raises nothing.

    Removes the files of dead daemons.
    """
    try:
        with _opened(layout) as folder_fd:
            return list(islice(_living(folder_fd), _MOST_LISTED))
    except OSError:
        return []


def _opened(layout: Layout) -> contextlib.AbstractContextManager[int]:
    return open_folder(layout.root, *os.path.relpath(_path(layout), layout.root).split(os.sep))


def _living(folder_fd: int) -> Iterator[dict[str, Any]]:
    with os.scandir(folder_fd) as listed:
        names = sorted(each.name for each in islice(listed, _MOST_NAMES))
    for name in names:
        match = _FILE.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(OSError, ValueError):  # ended since, or what somebody planted
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                continue
            if _is_dead(Owner(match[1], int(match[2]), int(match[3])), status):
                os.unlink(name, dir_fd=folder_fd)
            elif status.st_nlink == 1:  # with another name it is somebody else's file
                yield _read(folder_fd, name)


def _is_dead(owner: Owner, status: os.stat_result) -> bool:
    lives = is_alive(owner)
    return time.time() - status.st_mtime > _SILENT_SECONDS if lives is None else not lives


def _read(folder_fd: int, name: str) -> dict[str, Any]:
    fd = os.open(name, READ, dir_fd=folder_fd)
    try:
        body = parse_json(os.read(fd, _LARGEST_BYTES))
    finally:
        os.close(fd)
    return {key: body.get(key) for key in ("pid", "host", "since")}


def _write(folder_fd: int, name: str, content: bytes) -> None:
    """Write a new file: a file that is already under this name may be another user's, linked here."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder_fd)
    fd = os.open(name, _NEW, 0o600, dir_fd=folder_fd)
    try:
        if os.fstat(folder_fd).st_mode & stat.S_IWGRP:
            share_file(fd)
        write_all(fd, content)
    finally:
        os.close(fd)


def _path(layout: Layout) -> str:
    return os.path.join(layout.own, "standby")
