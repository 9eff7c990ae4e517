"""Mounts: which file system a path is on, of which kind, whether on a network, and for how long its answers hold.

Decides which of the kernel's names mean a kind (:func:`is_kind`), for the store and for the doctor. Reads the kernel's
table (0.1 ms), because each process that puts or hits needs it once for each directory. Where there is no such table
(macOS), psutil has it, which takes 15 ms to load. Not promised: an answer in a bare chroot or sandbox.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from lockcache.fork import unforked

_TABLE: Final = "/proc/self/mounts"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})", re.ASCII)

# The beginnings of Linux's names for them. A FUSE file system may be local, but each of its calls is a round trip to a
# daemon.
_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "gluster", "beegfs", "9p", "afs", "orangefs", "pvfs",
                   "fuse", "virtiofs", "wekafs", "panfs", "seaweedfs")  # fmt: skip
# A file system on a disk of this machine, in spite of its name.
_LOCAL: Final = ("fuseblk",)

#: For how long an answer of a network file system is taken for true: to ask again is a call to its server.
FRESH_SECONDS: Final = 1.0


class Mount(NamedTuple):
    """A mounted file system."""

    kind: str
    device: str
    point: str
    options: str

    def has(self, *names: str) -> bool:
        """Returns whether one of these options is set, whatever its value."""
        return any(option.partition("=")[0] in names for option in self.options.split(","))


def is_kind(kind: str, *names: str) -> bool:
    """Returns whether ``kind``, Linux's name, is one of ``names``: nfs4 is nfs, fuse.sshfs is fuse, and smb3 is smb."""
    kind = kind.lower()
    return kind.startswith(names) and kind not in _LOCAL


def is_fresh(asked_at: float) -> bool:
    """Returns whether what a server said at ``asked_at``, in monotonic seconds, is still taken for true."""
    return time.monotonic() - asked_at < FRESH_SECONDS


def mount_of(path: str) -> Mount | None:
    """Returns the mount that ``path`` is on; ``None`` where that is not known (no /proc)."""
    real = os.path.realpath(path) + "/"
    try:
        mounts = list(_mounts())
    except OSError:
        return None
    over = [mount for mount in mounts if real.startswith(mount.point.rstrip("/") + "/")]
    # The last of several mounts at one point is on top.
    return max(enumerate(over), key=lambda each: (len(each[1].point), each[0]))[1] if over else None


def _mounts() -> Iterator[Mount]:
    try:
        with open(_TABLE, encoding="utf-8", errors="surrogateescape") as table:
            for line in table:
                device, point, kind, options = map(_plain, line.split(" ", 4)[:4])
                yield Mount(kind, device, point, options)
    except FileNotFoundError:
        with unforked:
            import psutil
        for part in psutil.disk_partitions(all=True):
            yield Mount(part.fstype, part.device, part.mountpoint, part.opts)


def _plain(field: str) -> str:
    """Returns a field of the table with its octal escapes resolved: of blanks, tabs, line ends and backslashes."""
    # Nearly none has one, and a program that opens a directory on tmpfs waits for all of them.
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field) if "\\" in field else field


def is_network(path: str) -> bool:
    """Returns whether each use of a file below ``path`` is a round trip to a server.

    ``False`` where that is not known.
    """
    return bool(network_kind(path))


def network_kind(path: str) -> str:
    """Returns what Linux calls the network file system that ``path`` is on; empty if it is on none, or not known."""
    with contextlib.suppress(OSError):
        if os.major(os.stat(path).st_dev):
            return ""  # on a block device: the table, 0.1 ms, need not be read
    mount = mount_of(path)  # None without /proc: a bare chroot or sandbox
    return mount.kind.lower() if mount is not None and is_network_mount(mount) else ""


def is_network_mount(mount: Mount) -> bool:
    """Returns whether each use of a file there is a round trip to a server."""
    return is_kind(mount.kind, *_NETWORK)
