"""Who owns a staged file, and whether that process still lives.

Keeps invariant 5: what a killed process left behind is recognised at once on its own host. A pid means something only
within one host, boot and pid namespace (containers that share a directory each have their own pid 7), so a name
carries a token of all three, and a pid is judged only under our own token. Not promised: the life of processes on other
hosts; :mod:`.repair.recount` judges their files by lock and age.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import socket
from typing import NamedTuple

from lockcache.fork import unforked

__all__ = ["Owner", "is_alive", "myself", "next_serial"]

# Creation times are read through the boot time, which the kernel derives from the wall clock: two readings of one
# process differ when the clock is stepped in between. A pid is not reused within this span.
_START_TOLERANCE_SECONDS = 2

# In place of a start: where there is no /proc a process cannot say its own, and its pid must do.
_UNKNOWN_START = 0
_ZOMBIE = -1

_serials = itertools.count()


class Owner(NamedTuple):
    """A process, named so that no other is meant."""

    #: Token of host, boot and pid namespace, in which ``pid`` means something.
    host: str
    pid: int
    start_seconds: int


def next_serial() -> int:
    """A number that no other staged file of this process has."""
    return next(_serials)


@functools.cache
def myself() -> Owner:
    """This process. Read once; a forked child reads its own."""
    return Owner(_host_token(), os.getpid(), _start_seconds(os.getpid()) or _UNKNOWN_START)


def is_alive(owner: Owner) -> bool | None:
    """Whether the owner runs; ``None`` if it cannot be told from here (another host, boot or container)."""
    if owner.host != myself().host:
        return None
    if owner == myself() or not _exists(owner.pid):
        return owner == myself()
    start_seconds = _start_seconds(owner.pid)
    if start_seconds is None or owner.start_seconds == _UNKNOWN_START:
        return True  # the kernel says that there is one, and nobody says that it is another
    return start_seconds != _ZOMBIE and abs(start_seconds - owner.start_seconds) <= _START_TOLERANCE_SECONDS


def _exists(pid: int) -> bool:
    if pid <= 0:
        return False  # to the kernel that means a process group
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _start_seconds(pid: int) -> int | None:
    """When the process started, ``_ZOMBIE`` if it has ended, ``None`` if that cannot be told (no /proc, no access)."""
    with unforked:
        import psutil  # 15 ms that a process which only reads need not pay

    try:
        process = psutil.Process(pid)
        return _ZOMBIE if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    except (psutil.Error, OSError):
        return None


def _host_token() -> str:
    parts = [socket.gethostname()]
    for read in (_boot_id, _pid_namespace):
        try:
            parts.append(read())
        except OSError:
            parts.append("")  # not Linux: the host name alone must do
    return hashlib.sha256("\0".join(parts).encode(), usedforsecurity=False).hexdigest()[:16]


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=myself.cache_clear)
