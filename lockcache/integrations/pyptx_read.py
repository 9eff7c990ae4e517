"""Reading one entry of a pyptx directory: three files, and whether they are one entry.

Keeps invariant 1 with :mod:`.pyptx_sidecar`, and takes no lock: files of two writers are not bound by the digest, and
where there is no digest the json, which a writer of ours removes first, must be there still after all was read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lockcache.integrations.pyptx_sidecar import File, has_digest, is_plausible, is_whole, normalized, unpack

__all__ = ["READ", "Loaded", "load_with", "read_part"]

#: What one of the files is opened with: nothing that somebody put in its place is followed or waited for.
READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Loaded(NamedTuple):
    """An entry as read."""

    ptx: str
    cubin: bytes | None
    metadata: dict[str, Any]
    #: The json file's bytes. Unchanged bytes of a verified entry are an unchanged entry.
    stamp: bytes
    #: Whether a digest bound the files; what pyptx wrote has none.
    is_verified: bool


def load_with(root: str, sidecar: File, name: str, key: Mapping[str, Any]) -> Loaded | None:
    """The entry of ``key`` to which this json file belongs, or ``None``."""
    ptx, cubin = read_part(root, name, "ptx"), read_part(root, name, "cubin")
    if ptx is None:
        return None
    if has_digest(sidecar.content):
        found = _bound(sidecar.content, name, ptx.content, None if cubin is None else cubin.content)
    else:
        found = _unbound(root, sidecar, name, ptx, cubin)
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


def read_part(root: str, name: str, suffix: str) -> File | None:
    """One file as it stands; ``None`` for whatever cannot be served."""
    try:
        fd = os.open(f"{root}/{name}.{suffix}", READ)
    except OSError:
        return None  # missing, a symbolic link, not ours to read, a stale handle: nothing that can be served
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = os.read(fd, status.st_size)
        return File(content, status.st_mtime_ns) if len(content) == status.st_size else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _unbound(root: str, sidecar: File, name: str, ptx: File, cubin: File | None) -> _Found | None:
    """What pyptx wrote, if it may be one entry."""
    if [read_part(root, name, suffix) for suffix in ("json", "ptx", "cubin")] != [sidecar, ptx, cubin]:
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
    # An entry without a cubin, beside one that somebody else left there.
    if cubin is not None and is_whole(sidecar, name, ptx, None):
        return _Found(None, is_verified=True)
    return None
