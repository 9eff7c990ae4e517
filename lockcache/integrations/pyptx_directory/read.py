# SPDX-License-Identifier: Apache-2.0
"""Reading one entry of a pyptx directory: three files, and whether they are one entry.

Keeps invariant 1 (a hit is whole) with :mod:`.sidecar`, and takes no lock: files of two writers are not bound by
the digest, and where there is no digest the json, which lockcache's writer removes first, must be there still after all
was read. All three are opened before PTX and cubin are read: what is open stays as it is when it is replaced.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from lockcache.integrations.pyptx_directory.backup import Place
from lockcache.integrations.pyptx_directory.sidecar import File, has_digest, is_plausible, is_whole, normalized, unpack

__all__ = ["LARGEST_FILE_BYTES", "READ", "Loaded", "load_with", "opened_part", "read_opened", "read_part"]

#: What one of the files is opened with: nothing that somebody put in its place is followed or waited for.
READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: What is longer is not read: somebody may have made a hole of a terabyte of it. A cubin of 10 MB is a large one.
LARGEST_FILE_BYTES: Final = 1 << 30


class Loaded(NamedTuple):
    """An entry as read."""

    ptx: str
    cubin: bytes | None
    metadata: dict[str, Any]
    #: The json file's bytes. Unchanged bytes of a verified entry are an unchanged entry.
    stamp: bytes
    #: Whether a digest bound the files; what pyptx wrote has none.
    is_verified: bool


def load_with(place: Place, sidecar: File, name: str, key: Mapping[str, Any]) -> Loaded | None:
    """The entry of ``key`` to which this json file belongs, or ``None``."""
    with opened_part(place, name, "ptx") as ptx_fd, opened_part(place, name, "cubin") as cubin_fd:
        ptx, cubin = read_opened(ptx_fd), read_opened(cubin_fd)
    if ptx is None:
        return None
    if has_digest(sidecar.content):
        found = _bound(sidecar.content, name, ptx.content, None if cubin is None else cubin.content)
    else:
        found = _unbound(place, sidecar, name, ptx, cubin)
    if found is None:
        return None
    try:
        stated, metadata = unpack(sidecar.content)
        source = ptx.content.decode()
    except ValueError:  # UnicodeDecodeError is one
        return None
    if stated != normalized(key):
        return None
    return Loaded(source, found.cubin, metadata, sidecar.content, found.is_verified)


@contextlib.contextmanager
def opened_part(place: Place, name: str, suffix: str) -> Iterator[int]:
    """A file's descriptor meanwhile, or -1 for whatever cannot be served."""
    try:
        fd = _open(place, name, suffix)
    except OSError:
        fd = -1  # missing, a symbolic link, not readable for us, a stale handle: nothing that can be served
    try:
        yield fd
    finally:
        if fd >= 0:
            os.closerange(fd, fd + 1)  # what was read was read, whatever closing says


def _open(place: Place, name: str, suffix: str) -> int:
    if not place.folders:  # a hit: nothing but the root's owner decides what is in front of the file's name
        return os.open(place.path(name, suffix), READ)
    with place.opened() as folder_fd:
        return os.open(place.file(name, suffix), READ, dir_fd=folder_fd)


def read_opened(fd: int) -> File | None:
    """Returns the bytes that :func:`opened_part` opened; ``None`` for a file that cannot be served."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE_BYTES:
            return None
        content = os.read(fd, status.st_size)
        return File(content, status.st_mtime_ns) if len(content) == status.st_size else None
    except OSError:
        return None  # -1 is one


def read_part(place: Place, name: str, suffix: str) -> File | None:
    """One file as it stands; ``None`` for whatever cannot be served."""
    with opened_part(place, name, suffix) as fd:
        return read_opened(fd)


def _unbound(place: Place, sidecar: File, name: str, ptx: File, cubin: File | None) -> _Found | None:
    """Returns the entry that pyptx wrote, if the files may be one entry."""
    again = [read_part(place, name, suffix) for suffix in ("json", "ptx", "cubin")]
    # Not the json's time: another reader may just have stated its use there.
    if again[0] is None or again[0].content != sidecar.content or again[1:] != [ptx, cubin]:
        return None  # it is being written
    if cubin is not None and cubin.mtime_ns < ptx.mtime_ns:
        cubin = None  # pyptx leaves the older one where it is when it stores PTX alone
    if not is_plausible(sidecar, ptx, cubin):
        return None
    return _Found(None if cubin is None else cubin.content, is_verified=False)


class _Found(NamedTuple):
    cubin: bytes | None
    is_verified: bool


def _bound(sidecar: bytes, name: str, ptx: bytes, cubin: bytes | None) -> _Found | None:
    if is_whole(sidecar, name, ptx, cubin):
        return _Found(cubin, is_verified=True)
    # An entry without a cubin, next to one that another program left there.
    if cubin is not None and is_whole(sidecar, name, ptx, None):
        return _Found(None, is_verified=True)
    return None
