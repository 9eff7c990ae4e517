# SPDX-License-Identifier: Apache-2.0
"""Known file systems: the one that a path is on, and what is known of its kind.

The knowledge comes from trials with two mounts of each, and from their documentation of locks. It tells what no trial
on one machine can show: whether another machine's locks count. Two machines can try it: :mod:`.pair`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final, NamedTuple

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, Finding, Subject
from lockcache.filestream.disk import Mount, is_kind, is_network_mount, mount_of


class _Known(NamedTuple):
    """A known property of a kind of file system, under some condition."""

    #: For :func:`is_kind`.
    kinds: tuple[str, ...]
    applies: Callable[[Mount], bool]
    verdict: str
    means: str
    advice: str


_LOCKS_STAY: Final = (
    "locks exclude only processes of this machine: with several machines the cap is approximate, and each compiles for "
    "itself; entries stay whole"
)
_NO_RENAME: Final = (
    "renames are copies: reads during writes are misses, writes are slow, two machines may undo each other"
)
_LOCAL_FIRST: Final = "use a local directory, in front of it (TieredProgramCache) or instead"

_always: Final[Callable[[Mount], bool]] = lambda mount: True  # noqa: E731

# The first one that applies counts. The store, not this table, decides which kinds are network file systems.
_KNOWN: Final = (
    _Known(
        ("nfs",),
        lambda mount: mount.has("nolock") or any(f"local_lock={what}" in mount.options for what in ("all", "flock")),
        DEGRADED,
        _LOCKS_STAY,
        "mount it without nolock, and with local_lock=none (NFS 4 needs neither)",
    ),
    _Known(
        ("nfs",),
        _always,
        NOTE,
        "a use is stated once a minute; what another machine stored, replaced or removed may be seen late",
        "each machine needs a host name of its own: two clients with one name lose their locks",
    ),
    _Known(
        ("fuse.sshfs", "fuse.sftpfs"),
        _always,
        DEGRADED,
        _LOCKS_STAY + "; no attributes, and times in seconds",
        "use NFS between the machines, or a local directory on each",
    ),
    _Known(
        ("fuse.seaweedfs", "seaweedfs", "fuse.weed"),
        _always,
        DEGRADED,
        "neither locks nor exclusive creation exclude other mounts: the cap is approximate, each compiles for itself",
        _LOCAL_FIRST,
    ),
    _Known(
        (
            "fuse.s3fs",
            "fuse.goofys",
            "fuse.gcsfuse",
            "fuse.rclone",
            "fuse.mountpoint-s3",
            "fuse.blobfuse",
            "fuse.s3ql",
            "fuse.geesefs",
            "fuse.ossfs",
            "fuse.cosfs",
        ),
        _always,
        DEGRADED,
        _NO_RENAME,
        _LOCAL_FIRST,
    ),
    _Known(
        ("lustre",),
        lambda mount: mount.has("localflock") or mount.has("noflock") or not mount.has("flock"),
        DEGRADED,
        _LOCKS_STAY,
        "mount it with -o flock",
    ),
    _Known(
        ("beegfs",),
        _always,
        NOTE,
        "unless tuneUseGlobalFileLocks is true, " + _LOCKS_STAY,
        "set tuneUseGlobalFileLocks = true in beegfs-client.conf",
    ),
    _Known(
        ("cifs", "smb"),
        lambda mount: mount.has("nobrl", "nolock"),
        DEGRADED,
        _LOCKS_STAY,
        "mount it without nobrl",
    ),
    _Known(
        ("cifs", "smb"),
        _always,
        NOTE,
        "a rename over a file that another machine has open may be refused: such a write is dropped",
        "prefer NFS between machines that run Linux",
    ),
    _Known(
        ("vfat", "msdos", "exfat"),
        _always,
        DEGRADED,
        "no attributes, no owners and modes, coarse times",
        "format it with ext4 or xfs",
    ),
    _Known(
        ("tmpfs", "ramfs"),
        _always,
        NOTE,
        "entries are held in memory and are gone after a restart",
        "fine for one job; for a warm start use a disk, or `lockcache unpack` a bundle",
    ),
    _Known(
        ("overlay",),
        _always,
        NOTE,
        "what a container writes here is its own, and gone with it; what it reads may come from the image",
        "mount a volume where containers are to share what they compile",
    ),
)


def file_system(subject: Subject) -> list[Finding]:
    """Name the file system, and report what is known of its kind."""
    mount = mount_of(subject.place)
    if mount is None:
        return [Finding("file system", UNTESTED, "not known here: no /proc")]
    return [judge(mount)]


def other_hosts(subject: Subject) -> list[Finding]:
    """Report what one host alone cannot check of a network file system, and how two hosts can."""
    mount = mount_of(subject.place)
    if mount is None or not is_network_mount(mount):
        return []
    found = (
        "not tried: whether locks exclude them, how late they see what was stored, replaced or removed, their clocks"
    )
    means = "all else here is what processes of this host see of each other"
    pair = f"lockcache doctor --pair {shlex.quote(subject.root)}"
    mpi = f"mpiexec -n 2 -ppn 1 {pair} (Open MPI: --map-by ppr:1:node)"
    advice = f"run on two hosts at once: {pair}; or {mpi}; or srun -N 2 {pair}"
    return [Finding("other hosts", NOTE, found, means, advice)]


def judge(mount: Mount) -> Finding:
    """Returns the finding about a mount."""
    found = f"{mount.kind or 'unknown'} ({mount.device}) on {mount.point}: {mount.options}"
    measured = {"kind": mount.kind, "device": mount.device, "mount_point": mount.point, "options": mount.options}
    for known in _KNOWN:
        if is_kind(mount.kind, *known.kinds) and known.applies(mount):
            return Finding("file system", known.verdict, found, known.means, known.advice, measured)
    if is_network_mount(mount):
        return Finding("file system", NOTE, found, "a use is stated once a minute", measured=measured)
    return Finding("file system", GOOD, found, measured=measured)
