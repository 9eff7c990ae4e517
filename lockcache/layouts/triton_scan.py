# SPDX-License-Identifier: Apache-2.0
"""Scan of a Triton cache: one directory per key, and of each what it is, how large, and when it was used.

Decides what counts as an entry. A compiled kernel is one once its ``__grp__*.json``, which Triton writes last and reads
first, is there and no other file is younger. What holds compiler stages without it is not an entry: a compiler is at
it, for as long as ptxas takes, or died of it. All other files (launchers, results of the autotuner, what a back end of
its own keeps) stand alone and are entries as they are. Only names are looked at: what is in the files is Triton's.

Not promised: a consistent picture while Triton goes on; a caller that needs one scans again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lockcache.filestream.disk import last_use_ns
from lockcache.layouts.openat import ROOT, Homes, disk_bytes, find_homes, folder, folders_in, statuses_in
from lockcache.lowlevel import Found

#: Before the name of a kernel's metadata file: the list of the files that belong together.
GROUP_PREFIX: Final = "__grp__"

# sha256 in base32, as Triton names keys since 3.2; in base64 and in hex, as it did before.
_KEY: Final = re.compile(r"[A-Z2-7]{52}|[A-Za-z0-9_-]{43}|[0-9a-f]{64}", re.ASCII)
_STAGED_PREFIX: Final = "tmp.pid_"
# The files that a compilation writes before its group file, on any back end.
_STAGES: Final = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv")


class KeyFolder(NamedTuple):
    """One key's directory as it was found."""

    found: Found
    #: Names of its group files.
    groups: tuple[str, ...]
    #: Every file in it, with its inode.
    files: tuple[tuple[str, int], ...]
    #: Folders in which Triton stages a file.
    staged: tuple[str, ...]
    #: When anything in it was last written, put there, or taken away: the ctime, which no copy can set.
    changed_ns: int
    #: When its list of files last changed.
    folder_mtime_ns: int
    #: Whether a compiler may be at work in it, or died there.
    is_unfinished: bool

    @property
    def is_entry(self) -> bool:
        return self.found.inode != 0


def is_key(name: str) -> bool:
    """Returns whether a directory of this name may be a key's."""
    return _KEY.fullmatch(name) is not None


def keys(root_fd: int, homes: Homes = ROOT) -> Iterator[str]:
    """Yields the paths of all keys' directories."""
    for home in find_homes(root_fd, homes)[0]:
        yield from folders_in(root_fd, home, _KEY)


def scan(root_fd: int, homes: Homes = ROOT, between: Callable[[], object] = lambda: None) -> Iterator[KeyFolder]:
    """Yields every key's directory, in no order. ``between`` is called before each, and may raise to give up."""
    for path in keys(root_fd, homes):
        between()
        seen = look(root_fd, path)
        if seen is not None:
            yield seen


def look(root_fd: int, path: str) -> KeyFolder | None:
    """Returns a key's directory as it is now; ``None`` if there is none, or one that Triton never made.

    Triton makes no folders there except for staging: another folder belongs to a user, and so does all that is next to
    it.
    """
    with folder(root_fd, path) as fd:
        if fd is None:
            return None
        statuses: dict[str, os.stat_result] = {}
        staged: list[str] = []
        for name, status in statuses_in(fd):
            statuses[name] = status
            if stat.S_ISDIR(status.st_mode):
                if not name.startswith(_STAGED_PREFIX):
                    return None
                staged.append(name)
        staged_bytes = sum(_bytes_in(fd, each) for each in staged)
        return _key_folder(path, os.fstat(fd), statuses, staged, staged_bytes)


def _key_folder(
    path: str, itself: os.stat_result, statuses: dict[str, os.stat_result], staged: list[str], staged_bytes: int
) -> KeyFolder:
    size, changed_ns = disk_bytes(itself) + staged_bytes, itself.st_ctime_ns
    used_ns = published_ns = written_ns = 0
    files, groups = [], []
    for name, status in statuses.items():  # 100,000 times a few files: one pass, and no more calls than it needs
        size += disk_bytes(status)
        changed_ns = max(changed_ns, status.st_ctime_ns)
        if name in staged:
            continue
        files.append((name, status.st_ino))
        used_ns = max(used_ns, last_use_ns(status))
        if name.startswith(GROUP_PREFIX):
            groups.append(name)
            published_ns = max(published_ns, status.st_mtime_ns)
        else:
            written_ns = max(written_ns, status.st_mtime_ns)
    is_entry = bool(groups) or (bool(files) and not any(name.endswith(_STAGES) for name, _ in files))
    # A file that is newer than the group file, which is written last: the key is being compiled again.
    is_rewritten = bool(groups) and written_ns > published_ns
    return KeyFolder(
        Found(used_ns or itself.st_mtime_ns, path, size, itself.st_ino if is_entry else 0),
        tuple(sorted(groups)),
        tuple(files),
        tuple(staged),
        changed_ns,
        itself.st_mtime_ns,
        bool(staged) or not is_entry or is_rewritten,
    )


def _bytes_in(folder_fd: int, name: str) -> int:
    with folder(folder_fd, name) as fd:
        return 0 if fd is None else sum(disk_bytes(status) for _, status in statuses_in(fd))
