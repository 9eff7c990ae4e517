# SPDX-License-Identifier: Apache-2.0
"""Owners of staged files: which process one is, whether it still lives, and when its staged file is abandoned.

Keeps invariant 5 (death is free): what a killed process left behind is recognised at once on its own host. A pid means
something only within one host, boot and pid namespace (containers that share a directory each have their own pid 7), so
a name carries a token of all three, and a pid is judged only under our own token. A start is counted in ticks since the
boot, which no step of the wall clock changes.

The rule, for everything that a process can leave behind: a living process is never taken for dead. Under our own token
the kernel is asked, and the dead are known at once. Under any other token (another host, also of the same name; another
boot; another container, also with the same pid) nothing is known of the process: its locks and leases are the kernel's
and end with it, or with the file server's lease if its host died; its staged file is removed by the first reap that
finds it a minute old and not locked. A process on a host that does not state its boot or pid namespace shares a token
only with its forked children: two hosts of one name may each have a living pid 7. For staged files :func:`is_abandoned`
decides by this rule. Not promised: the life of processes on other hosts; nor of virtual machines that were copied while
they ran, which agree in all that the kernel tells.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from lockcache.filestream.disk.layout import Layout, name_staged, next_serial

#: A write takes milliseconds. Reaping skips younger files, which saves a look at each owner (0.1 ms) while many
#: processes write.
YOUNG_SECONDS: Final = 1.0
#: For owners on other hosts, whose pid says nothing here and whose clock may differ.
FOREIGN_GRACE_SECONDS: Final = 60.0

# In place of a start time: without /proc a process does not know its own, and only its pid is compared.
_UNKNOWN_START = 0
_ZOMBIE = -1
# Fields of proc(5), counted from the one that follows the program's name.
_STATE, _START = 0, 19
_ENDED = (b"Z", b"X")

# In place of what a host does not tell. Of the time namespace that says that there are none (Linux 5.5 and older).
_OF_THIS_PROCESS = secrets.token_hex(8)

_given_up: set[str] = set()


class Owner(NamedTuple):
    """A process, named so that no other is meant."""

    #: Token of host, boot, pid and time namespace, in which ``pid`` and ``start_ticks`` mean something.
    host: str
    pid: int
    #: Since the boot, as the kernel counts them; 0 where it does not say.
    start_ticks: int


def give_up(file: str) -> None:
    """State that this process is done with a staged file of its own that the disk did not let it remove.

    A reap in this process then treats the file as a dead owner's; other processes do so once this process has ended.
    """
    _given_up.add(file)


def is_given_up(file: str) -> bool:
    """Returns whether this process gave a staged file up."""
    return file in _given_up


def forget_given_up(file: str) -> None:
    """State that a file is gone, whichever process owned it."""
    _given_up.discard(file)


@functools.cache
def myself() -> Owner:
    """Returns the owner that this process is. Computed once in each process."""
    return Owner(_host_token(), os.getpid(), _start_ticks(os.getpid()) or _UNKNOWN_START)


def staged_path(layout: Layout, shard: int, size_bytes: int) -> str:
    """Returns a new path for something that this process stages for a shard, and for which it reserves so much."""
    return f"{layout.tmp}/{name_staged(shard, size_bytes, *myself(), next_serial())}"


def is_alive(owner: Owner) -> bool | None:
    """Returns whether the owner runs; ``None`` if that is not known here (another host, boot or container)."""
    if owner.host != myself().host:
        return None
    if owner == myself() or not _exists(owner.pid):
        return owner == myself()
    start_ticks = _start_ticks(owner.pid)
    if start_ticks is None or owner.start_ticks == _UNKNOWN_START:
        return True  # the kernel says that there is one, and nobody says that it is another
    return start_ticks == owner.start_ticks  # of a zombie it is another


def is_abandoned(
    file: str,
    owner: Owner,
    age_seconds: float,
    grace_seconds: float = FOREIGN_GRACE_SECONDS,
    is_unlocked: Callable[[], bool] = lambda: True,
) -> bool:
    """Returns whether ``owner`` is done with its staged file of this name and age, so that it may be removed.

    Where nothing is known of the owner, that is so after ``grace_seconds``, if ``is_unlocked`` then says as well that
    nobody holds the file.
    """
    if is_given_up(file):
        return True
    lives = is_alive(owner)
    if lives is None:
        return age_seconds > grace_seconds and is_unlocked()
    return not lives


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


def _start_ticks(pid: int) -> int | None:
    """Returns when the process started, ``_ZOMBIE`` if it has ended, ``None`` if not known (no /proc, no access)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # A program may call itself anything, also ") Z 1"; what follows the last parenthesis is the kernel's.
            fields = file.read().rpartition(b")")[2].split()
        return _ZOMBIE if fields[_STATE] in _ENDED else int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None


def _host_token() -> str:
    parts = [socket.gethostname()]
    for read, otherwise in ((_boot_id, _OF_THIS_PROCESS), (_pid_namespace, _OF_THIS_PROCESS), (_time_namespace, "")):
        try:
            parts.append(read())
        except OSError:
            parts.append(otherwise)
    return hashlib.sha256("\0".join(parts).encode(), usedforsecurity=False).hexdigest()[:16]


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _time_namespace() -> str:
    return os.readlink("/proc/self/ns/time")  # a container may have its own boot time, and other ticks with it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=myself.cache_clear)
