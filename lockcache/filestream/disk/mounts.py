# SPDX-License-Identifier: Apache-2.0
"""Mounts: which file system a path is on, of which kind, and what to ask of its server because of other hosts.

Decides which of the kernel's names mean a kind (:func:`is_kind`), for the store and for the doctor. Reads the kernel's
table (0.1 ms), because each process that puts or hits needs it once for each directory. Where there is no such table
(macOS), psutil has it, which takes 15 ms to load. Not promised: an answer in a bare chroot or sandbox.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections import deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lockcache.fork import unforked

if TYPE_CHECKING:
    from lockcache.filestream.disk.folders import Folder
    from lockcache.filestream.disk.layout import Layout
    from lockcache.filestream.disk.reach import Reach

_TABLE: Final = "/proc/self/mounts"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})", re.ASCII)

# The beginnings of Linux's names for them. A FUSE file system may be local, but each of its calls is a round trip to a
# daemon.
_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "gluster", "beegfs", "9p", "afs", "orangefs", "pvfs",
                   "fuse", "virtiofs", "wekafs", "panfs", "seaweedfs")  # fmt: skip
# A file system on a disk of this machine, in spite of its name.
_LOCAL: Final = ("fuseblk",)

# The last folders that were found to be on no network file system: path, device, inode and time of the last change. A
# program that opens its directory for each compilation would read the table each time, and wait for a process that
# mounts something (seen: 0.7 ms). It stays true: a device's number goes to another file system only once this one is
# unmounted, and there the folder has another inode, or was changed at another nanosecond. Answers about servers are not
# kept: the same folders may be mounted by another protocol.
_local: Final[deque[object]] = deque(maxlen=64)

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
    folder = None
    with contextlib.suppress(OSError):
        status = os.stat(path)
        folder = path, status.st_dev, status.st_ino, status.st_ctime_ns
        if os.major(status.st_dev) or folder in _local:
            return ""  # on a block device: the table, 0.1 ms, need not be read
    mount = mount_of(path)  # None without /proc: a bare chroot or sandbox
    if mount is not None and is_network_mount(mount):
        return mount.kind.lower()
    if mount is not None:
        _local.append(folder)
    return ""


def is_network_mount(mount: Mount) -> bool:
    """Returns whether each use of a file there is a round trip to a server."""
    return is_kind(mount.kind, *_NETWORK)


class Hosts:
    """The other hosts that change a directory: none, on a local file system. There is nothing to ask."""

    __slots__ = ()

    #: Whether this one's kernel remembers what it saw in the directory.
    is_network = False
    #: Whether a process serves the file system to the kernel, and may remember more than that.
    is_fuse = False
    #: Whether all hosts and mounts see a folder by the same inode, however often it is looked up.
    has_lasting_inodes = True
    #: Whether a put looks for a cap only once, so that the first cap has to count what is being written.
    look_once_for_cap = False
    #: Whether a file that is unlinked while it is open is renamed instead, and removed when it is closed.
    keep_what_is_open = False

    def at(self, reach: Reach, path: str) -> Folder:
        """Returns a folder as the other hosts have left it, for names in it. ``reach``: the way to it."""
        return reach.at(path)

    def look(self, path: str) -> bool:
        """Make this host see what others have put into a folder, and removed. Returns whether the folder is there.

        On a local file system this does nothing, and the answer is ``True``.
        """
        return True

    def has(self, path: str, *, is_sure: bool = False) -> bool:
        """Returns whether a file is there, once this host sees what others have put into its folder.

        ``is_sure``: the answer is worth a list of the folder on NFS, where it is rarely needed.
        """
        return os.access(path, os.F_OK, effective_ids=True)

    def may_have(self, path: str) -> bool:
        """Returns whether to look for a file: a server is asked for a missing one at most once a second."""
        return True

    def may_have_since(self, path: str) -> bool:
        """Returns whether a file that was missing may be there by now, after a look at the folders on the way."""
        return False

    def may_hear(self, bell: str) -> bool:
        """Returns whether a process may listen to a bell: one of another host may, and have none here."""
        return os.path.lexists(bell)

    def state_of(self, path: str) -> Hashable:
        """Returns a value that changes when a file is made again or written; ``None``: there is no file, or to look
        would be a call to a server."""
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def wait_out_looks(self) -> None:
        """Wait until no host relies on a look of before this call."""

    def look_at_shard_locked(self, shard: int, *, makes: bool = False) -> bool:
        """See what others did to a shard: what is accounted for here must be what is there. Requires: shard lock.

        ``makes``: a missing folder of entries will be wanted. To make it says as well whether another host has, in one
        call to the server, where to look in its parent, look again, and make it then are three. Returns whether it was
        made, so that there is nothing in it.
        """
        return False


class ServerHosts(Hosts):
    """The hosts of a network file system, whose server has to be asked what they did.

    A client remembers names, missing ones too, for up to a minute. Opening the folder makes it ask the server. A folder
    that was missing is itself such a name, of its parent.
    """

    __slots__ = ("_layout", "_looked")

    is_network = True
    look_once_for_cap = True
    keep_what_is_open = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        # When each folder was last looked at for a missing file, in monotonic seconds.
        self._looked: dict[str, float] = {}

    def at(self, reach: Reach, path: str) -> Folder:
        try:
            return reach.opened(path)
        except FileNotFoundError:
            reach.opened(os.path.dirname(path)).close()
        return reach.opened(path)

    def look(self, path: str) -> bool:
        try:
            ServerHosts.at(self, self._layout.reach, path).close()
        except OSError:
            return False
        return True

    def has(self, path: str, *, is_sure: bool = False) -> bool:
        return self.look(os.path.dirname(path)) and super().has(path)

    def may_have(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if is_fresh(self._looked.get(folder, -math.inf)) and not super().has(path):
            return False
        self._looked[folder] = time.monotonic()
        return True

    def may_have_since(self, path: str) -> bool:
        folder = os.path.dirname(path)
        return self.look(os.path.dirname(folder)) and self.look(folder)

    def may_hear(self, bell: str) -> bool:
        return True

    def state_of(self, path: str) -> Hashable:
        return None

    def look_at_shard_locked(self, shard: int, *, makes: bool = False) -> bool:
        layout, folder, is_new = self._layout, self._layout.entry_shard(shard), False
        if makes:
            is_new = self._open_or_make(folder)
        else:
            self.look(folder)
        if self._has_records():
            self.look(layout.record_shard(shard))
            if super().has(layout.views):
                self.look(layout.view_shard(shard))
        return is_new

    def _has_records(self) -> bool:
        return super().has(self._layout.records)

    def _open_or_make(self, path: str) -> bool:
        """Make this host see what is in a folder, and make the folder if it is missing. Returns whether it was made."""
        reach = self._layout.reach
        try:
            reach.opened(path).close()
        except FileNotFoundError:
            with contextlib.suppress(OSError):  # without its parent, the first writer makes both
                if reach.make_folder(path):
                    return True
            self.look(path)
        except OSError:
            pass  # a symlink, or a server that is gone: the next operation in the folder reports it
        return False


class NfsHosts(ServerHosts):
    """The hosts of an NFS server."""

    __slots__ = ()

    def has(self, path: str, *, is_sure: bool = False) -> bool:
        """Returns as :meth:`Hosts.has`.

        That takes more than :meth:`look`: a name that was missing may stay missing. A client of NFS 3 notices that a
        folder has changed by its time, and does not notice what changes within one tick of the server's clock (4 ms, or
        a whole second) after a look. And Linux's NFS 4 client takes the answer to an ``open`` for as new as what it
        knows of the folder when it handles that answer, which may be newer: another process has looked at the folder
        meanwhile. To list the folder gives the client its names, if the list that it remembers is dropped before.
        """
        if not is_sure:
            return super().has(path)
        folder = os.path.dirname(path)
        for each in (folder, os.path.dirname(folder), folder):
            with contextlib.suppress(OSError), self._layout.reach.opened(each) as listed:
                if Hosts.has(self, path):
                    return True
                os.posix_fadvise(listed.number, 0, 0, os.POSIX_FADV_DONTNEED)
                names = os.listdir(listed.number)
                if each == folder:
                    return os.path.basename(path) in names
        return False

    def wait_out_looks(self) -> None:
        time.sleep(FRESH_SECONDS)


class Nfs3Hosts(NfsHosts):
    """The hosts of a server of NFS 3, which numbers no changes as NFS 4 does: a changed folder shows by its time.

    It looks for a name before it opens the file: elsewhere that is one more call to the server.
    """

    __slots__ = ()

    def at(self, reach: Reach, path: str) -> Folder:
        return reach.at(path)  # it was opened a moment ago

    def may_have(self, path: str) -> bool:
        return super().may_have(path) and self.has(path, is_sure=True)

    def may_have_since(self, path: str) -> bool:
        return self.look(os.path.dirname(os.path.dirname(path))) and self.has(path, is_sure=True)

    def _has_records(self) -> bool:
        # There are no attributes, so there is this folder as soon as another host has put anything.
        return super()._has_records() or self.look(self._layout.records)


class FuseHosts(ServerHosts):
    """The hosts of a file system that a process serves to the kernel."""

    __slots__ = ()

    is_fuse = True
    has_lasting_inodes = False


class UnnumberedHosts(ServerHosts):
    """The hosts of a server that sends no inodes: each client makes up its own."""

    __slots__ = ()

    has_lasting_inodes = False


NO_OTHERS: Final = Hosts()
# By the beginnings of Linux's names, in this order. NFS 4 is nfs4.
_KINDS: Final[tuple[tuple[str, type[ServerHosts]], ...]] = (
    ("nfs4", NfsHosts),
    ("nfs", Nfs3Hosts),
    ("fuse", FuseHosts),
    ("cifs", UnnumberedHosts),
    ("smb", UnnumberedHosts),
    ("9p", UnnumberedHosts),
)


def hosts_of(layout: Layout) -> Hosts:
    """Returns the other hosts that may change what is below the root of ``layout``."""
    kind = network_kind(layout.root)
    if not kind:
        return NO_OTHERS
    return next((hosts for names, hosts in _KINDS if is_kind(kind, names)), ServerHosts)(layout)
