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
from dataclasses import dataclass
from typing import Final

from lockcache.filestream.disk import last_use_ns
from lockcache.layouts.openat import folder, status_in
from lockcache.lowlevel import Found

#: Before the name of a kernel's metadata file: the list of the files that belong together.
GROUP_PREFIX: Final = "__grp__"

# sha256 in base32, as Triton names keys since 3.2; in base64 and in hex, as it did before.
_KEY: Final = re.compile(r"[A-Z2-7]{52}|[A-Za-z0-9_-]{43}|[0-9a-f]{64}", re.ASCII)
_STAGED_PREFIX: Final = "tmp.pid_"
# The files that a compilation writes before its group file, on any back end.
_STAGES: Final = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv")


@dataclass(frozen=True)
class KeyFolder:
    """One key's directory as it was found."""

    found: Found
    #: Names of its group files.
    groups: tuple[str, ...]
    #: Every regular file in it, with its inode.
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


def keys(root_fd: int) -> list[str]:
    """Returns the names of all keys' directories."""
    with os.scandir(root_fd) as found:
        return [each.name for each in found if is_key(each.name) and each.is_dir(follow_symlinks=False)]


def scan(root_fd: int, between: Callable[[], object] = lambda: None) -> Iterator[KeyFolder]:
    """Yields every key's directory, in no order. ``between`` is called before each, and may raise to give up."""
    for name in keys(root_fd):
        between()
        seen = look(root_fd, name)
        if seen is not None:
            yield seen


def look(root_fd: int, name: str) -> KeyFolder | None:
    """Returns a key's directory as it is now; ``None`` if there is none, or one that Triton never made.

    Triton makes no folders there except for staging: another folder belongs to a user, and so does all that is next to
    it.
    """
    with folder(root_fd, name) as fd:
        if fd is None:
            return None
        files: dict[str, os.stat_result] = {}
        staged: dict[str, os.stat_result] = {}
        with os.scandir(fd) as listed:
            for each in listed:
                status = status_in(fd, each.name)
                if status is None:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    files[each.name] = status
                elif each.name.startswith(_STAGED_PREFIX):
                    staged[each.name] = status
                else:
                    return None
        staged_bytes = sum(_bytes_in(fd, each) for each in staged)
        return _key_folder(name, os.fstat(fd), files, staged, staged_bytes)


def _key_folder(
    name: str,
    itself: os.stat_result,
    files: dict[str, os.stat_result],
    staged: dict[str, os.stat_result],
    staged_bytes: int,
) -> KeyFolder:
    groups = tuple(sorted(file for file in files if file.startswith(GROUP_PREFIX)))
    is_entry = bool(files) and (bool(groups) or not any(file.endswith(_STAGES) for file in files))
    size = staged_bytes + sum(status.st_size for status in files.values())
    used_ns = max(map(last_use_ns, files.values()), default=itself.st_mtime_ns)
    return KeyFolder(
        Found(used_ns, name, size, itself.st_ino if is_entry else 0),
        groups,
        tuple((file, status.st_ino) for file, status in files.items()),
        tuple(staged),
        max(status.st_ctime_ns for status in (itself, *files.values(), *staged.values())),
        itself.st_mtime_ns,
        bool(staged) or not is_entry or _is_rewritten(groups, files),
    )


def _is_rewritten(groups: tuple[str, ...], files: dict[str, os.stat_result]) -> bool:
    """Returns whether a file is newer than the group file, which is written last: the key is being compiled again."""
    published_ns = max((files[group].st_mtime_ns for group in groups), default=0)
    return bool(groups) and any(status.st_mtime_ns > published_ns for status in files.values())


def _bytes_in(folder_fd: int, name: str) -> int:
    with folder(folder_fd, name) as fd:
        if fd is None:
            return 0
        with os.scandir(fd) as files:
            statuses = (status_in(fd, file.name) for file in files)
            return sum(status.st_size for status in statuses if status is not None)
