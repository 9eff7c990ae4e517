"""Mounts: which file system a path is on, and whether it is a network file system.

Asked seldom: psutil reads ``/proc`` (15 ms the first time). Not promised: an answer where there is no ``/proc``.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from lockcache.fork import unforked

__all__ = ["Mount", "is_network", "is_network_mount", "mount_of"]


# By what psutil calls them. A FUSE file system may be local, but each of its calls is a round trip to a daemon.
_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "gluster", "beegfs", "9p", "afs", "orangefs", "pvfs",
                   "fuse", "virtiofs", "wekafs", "panfs")  # fmt: skip
# A file system on a disk of this machine, in spite of its name.
_LOCAL: Final = ("fuseblk",)


class Mount(NamedTuple):
    """A mounted file system."""

    kind: str
    device: str
    point: str
    options: str

    def has(self, *names: str) -> bool:
        """Whether one of these options is set, whatever its value."""
        return any(option.partition("=")[0] in names for option in self.options.split(","))


def mount_of(path: str) -> Mount | None:
    """The mount that ``path`` is on; ``None`` where that cannot be told (no /proc)."""
    with unforked:
        import psutil  # 15 ms, once, and only for processes that hit

    real = os.path.realpath(path) + "/"
    try:
        partitions = psutil.disk_partitions(all=True)
    except OSError:
        return None
    over = [part for part in partitions if real.startswith(part.mountpoint.rstrip("/") + "/")]
    if not over:
        return None
    # Of several at one point the last is on top.
    top = max(enumerate(over), key=lambda each: (len(each[1].mountpoint), each[0]))[1]
    return Mount(top.fstype, top.device, top.mountpoint, top.opts)


def is_network(path: str) -> bool:
    """Whether each use of a file below ``path`` is a round trip to a server; ``False`` where that cannot be told."""
    mount = mount_of(path)
    return mount is not None and is_network_mount(mount)  # None without /proc: a bare chroot or sandbox


def is_network_mount(mount: Mount) -> bool:
    """Whether each use of a file there is a round trip to a server."""
    kind = mount.kind.lower()
    return kind.startswith(_NETWORK) and kind not in _LOCAL
