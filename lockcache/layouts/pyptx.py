# SPDX-License-Identifier: Apache-2.0
"""A pyptx directory, for programs that keep or inspect it: a walk over its entries, and their verification.

Keeps invariant 1 (a hit is whole) by the digest of lockcache's adapter, and looking apart from using: files are opened
with O_NOATIME.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Generator
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import NOATIME
from lockcache.filestream.entry import CORRUPT, PASSED_OVER, UNREADABLE, UNVERIFIED, WHOLE
from lockcache.integrations.pyptx_directory import (
    LARGEST_FILE_BYTES,
    READ,
    SUFFIXES,
    PyptxFiles,
    changed_ns,
    has_digest,
    is_whole,
    look,
    parse_name,
    unpack,
)
from lockcache.layouts.openat import opened_root
from lockcache.layouts.own_folder import restate_all
from lockcache.layouts.protocol import described
from lockcache.lowlevel import Described, Found, Layout, Verdict

# To see what an entry is called; pyptx's are some hundred bytes.
_LARGEST_SIDECAR_BYTES: Final = 1 << 20
# pyptx's own writers take no lock and write in place. What changed so recently may be pyptx's.
_SETTLED_SECONDS: Final = 60.0


class PyptxGuest(PyptxFiles):
    """:class:`.protocol.Files` of pyptx. Its writers lock and stage, so that entries need no time to settle before they
    are evicted."""

    settle_seconds = 0.0
    evicting_threads = 1

    @property
    def is_pending(self) -> bool:
        """Never: what is evicted is gone at once."""
        return False

    def finish(self) -> bool:
        """Returns False: nothing is left to do after an eviction."""
        return False

    def restate(self, found: Found) -> None:
        """Date the files of an entry to now whose use is dated to come."""
        with opened_root(self.root) as fd:
            restate_all(self.layout, fd, (f"{found.name}.{suffix}" for suffix in SUFFIXES))

    def glance(self) -> object:
        """Returns the folder's mtime: all files are in it, and every write renames into it."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.root).st_mtime_ns
        return 0


class PyptxEntries:
    """pyptx's layout: what lockcache's adapter stored has a digest over its three files. Corrupt ones are removed.

    Not into quarantine: nobody accounts here, so nothing could be kept next to the files within the cap.
    """

    def __init__(self, files: PyptxFiles, *, repair: bool = True) -> None:
        self._files = files
        self._repairs = repair
        self._listed: list[str] = []
        self._next = -1

    @property
    def layout(self) -> Layout:
        return self._files.layout

    def names(self, shard: int) -> list[str]:
        if shard != self._next:  # listed once for shards that are asked for in order
            parsed = map(parse_name, os.listdir(self._files.root))
            self._listed = sorted({name for name, suffix in filter(None, parsed) if suffix == "json"})
        self._next = shard + 1
        return [name for name in self._listed if name.startswith(f"{shard:02x}")]

    def verify(self, name: str) -> Generator[int, None, Verdict | None]:
        root = self._files.root
        found = look(root, name)
        if found is None or not found.inode:
            return None
        if time.time() - changed_ns(root, name) / 1e9 < _SETTLED_SECONDS:
            return Verdict(name, PASSED_OVER, found.size_bytes, "it was only just written")
        try:
            sidecar, ptx, cubin = (_read(f"{root}/{name}.{suffix}") for suffix in ("json", "ptx", "cubin"))
        except PermissionError:
            return Verdict(name, PASSED_OVER, found.size_bytes, "of another owner: reading it would count as a use")
        except OSError as error:
            return Verdict(name, UNREADABLE, found.size_bytes, str(error.strerror))
        yield found.size_bytes
        return self._judge(found, sidecar, ptx, cubin)

    def _judge(self, found: Found, sidecar: bytes | None, ptx: bytes | None, cubin: bytes | None) -> Verdict | None:
        name = found.name
        if sidecar is None or ptx is None:
            return None  # removed meanwhile
        if not has_digest(sidecar):
            return Verdict(name, UNVERIFIED, found.size_bytes)
        if is_whole(sidecar, name, ptx, cubin) or is_whole(sidecar, name, ptx, None):
            return Verdict(name, WHOLE, found.size_bytes)
        if not self._repairs:
            return Verdict(name, CORRUPT, found.size_bytes, "digest")
        with contextlib.suppress(LockTimeoutError):  # its writer is at work
            if self._files.evict(found):
                return Verdict(name, CORRUPT, found.size_bytes, "digest", is_repaired=True)
        return Verdict(name, PASSED_OVER, found.size_bytes, "it was written or used meanwhile")


def describe_entry(root: str, found: Found) -> Described:
    """Returns the description of an entry by its json file: the function's id is its label."""
    try:
        sidecar = _read(f"{root}/{found.name}.json", _LARGEST_SIDECAR_BYTES)
        key = json.loads(unpack(sidecar or b"")[0])
    except (OSError, ValueError):
        key = {}
    known = key if isinstance(key, dict) else {}
    kind = "cubin" if os.path.lexists(f"{root}/{found.name}.cubin") else "ptx"
    return described(found, kind=kind, arch=known.get("arch"), label=known.get("fn_id"))


def _read(path: str, most_bytes: int = LARGEST_FILE_BYTES) -> bytes | None:
    """Returns a file, empty for one that nobody reads; ``None`` if there is none. Raises :class:`OSError`."""
    try:
        fd = os.open(path, READ | NOATIME)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        is_plausible = stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes
        return os.read(fd, status.st_size) if is_plausible else b""
    finally:
        os.close(fd)
