# SPDX-License-Identifier: Apache-2.0
"""Contents of one folder: read as they lie there, and written again elsewhere, with modes and times.

Keeps invariant 1 (a hit is whole) for a folder: it is read between two looks that agree, and nothing in it is open for
writing; else it is being written. Modes and times are kept, because programs run some files and compare the times of
others (ninja). No symlink is followed, and what is read and what is believed of an entry has bounds: others may have
written either.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from lockcache.filestream.disk import FOLDER, READ, Descriptor, write_all
from lockcache.integrations.kept_folders.in_use import is_being_written, is_locked
from lockcache.integrations.kept_folders.pattern import is_unfinished
from lockcache.sizes import counted, format_size

__all__ = [
    "BusyError",
    "Contents",
    "RefusedError",
    "opened_folder",
    "parse_contents",
    "read_folder",
    "remove_tree",
    "walk",
    "write_in",
]

#: The largest folder. It is held in memory three times while it is stored.
LARGEST_BYTES: Final = 1 << 30
MOST_FILES: Final = 10_000
_DEEPEST: Final = 16

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE_MODES: Final = 0o755
_LATEST_NS: Final = 2**62
_ESCAPED: Final = re.compile("%(25|2F)")


class BusyError(Exception):
    """A folder that somebody writes to, or holds: it is not whole, or not yet."""


class RefusedError(Exception):
    """A folder that cannot be stored, and why."""


class Contents(NamedTuple):
    """What is in a folder. Paths are relative to it."""

    #: By path, the permissions of each folder; the folder itself has an empty path.
    folders: dict[str, int]
    #: By path, the bytes, the permissions, and the time of the last change in nanoseconds.
    files: dict[str, tuple[bytes, int, int]]

    def as_files(self) -> dict[str, bytes]:
        """Returns the files as ``put_files`` takes them."""
        return {_escape(path): code for path, (code, _, _) in self.files.items()}

    def as_metadata(self) -> dict[str, Any]:
        """Returns what is in the metadata of an entry next to the files."""
        return {
            "folders": [(path, mode) for path, mode in self.folders.items()],
            "modes": [mode for _, mode, _ in self.files.values()],
            "times": [time_ns for _, _, time_ns in self.files.values()],
        }


def parse_contents(files: Mapping[str, bytes], metadata: Mapping[str, Any]) -> Contents | None:
    """Returns the contents that an entry states; ``None`` for an entry of another kind, or with impossible values."""
    modes, times, listed = (metadata.get(name) for name in ("modes", "times", "folders"))
    if not (isinstance(modes, list) and isinstance(times, list) and isinstance(listed, list)):
        return None
    folders: dict[str, int] = {}
    for each in listed[: MOST_FILES + 1]:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) and _is_mode(each[1])):
            return None
        folders[each[0]] = each[1]
    found = {}
    if not len(files) == len(modes) == len(times):
        return None
    for (name, code), mode, time_ns in zip(files.items(), modes, times, strict=True):
        if not (_is_mode(mode) and type(time_ns) is int and 0 <= time_ns < _LATEST_NS):
            return None
        found[_unescape(name)] = code, mode, time_ns
    whole = all(os.path.dirname(path) in folders for path in (*found, *filter(None, folders)))
    is_possible = all(map(_is_path, (*found, *filter(None, folders)))) and not found.keys() & folders.keys()
    return Contents(folders, found) if whole and is_possible and "" in folders and len(found) == len(files) else None


def read_folder(folder_fd: int, most_bytes: int, *, was_moved: bool, is_network: bool = False) -> Contents:
    """Returns the contents of a folder. ``was_moved``: it appeared whole, by a rename.

    ``is_network``: the kernel cannot say which files are open for writing.

    Raises :class:`BusyError`, :class:`RefusedError`, and :class:`OSError`.
    """
    before = _look(folder_fd, most_bytes)
    contents = Contents({"": stat.S_IMODE(os.fstat(folder_fd).st_mode)}, {})
    for inner_fd, path, status in walk(folder_fd):
        name = os.path.basename(path)
        if not was_moved and is_unfinished(name):
            raise BusyError(path)
        if stat.S_ISDIR(status.st_mode):
            contents.folders[path] = stat.S_IMODE(status.st_mode)
        elif name == "lock":  # which is held for as long as it is there
            raise BusyError(path)
        else:
            mode, code = stat.S_IMODE(status.st_mode), _read(inner_fd, name, status, is_network)
            contents.files[path] = code, mode, max(0, status.st_mtime_ns)
    if _look(folder_fd, most_bytes) != before:
        raise BusyError
    return contents


def walk(folder_fd: int, _above: str = "", _depth: int = 1) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yields all that is in a folder: the open folder that it is in, its path, and its status. Follows no symlink.

    A folder comes before what is in it. Raises :class:`RefusedError` where it is too deep, and :class:`OSError`.
    """
    if _depth > _DEEPEST:
        raise RefusedError(f"is more than {_DEEPEST} folders deep")
    with os.scandir(folder_fd) as found:
        entries = sorted(found, key=lambda each: each.name)
    for each in entries:
        status = os.stat(each.name, dir_fd=folder_fd, follow_symlinks=False)
        path = f"{_above}{each.name}"
        yield folder_fd, path, status
        if stat.S_ISDIR(status.st_mode):
            with opened_folder(folder_fd, each.name) as inner_fd:
                yield from walk(inner_fd, f"{path}/", _depth + 1)


@contextlib.contextmanager
def opened_folder(folder_fd: int, *names: str) -> Iterator[int]:
    """Yields a folder below an open one, each name in the one before, through no symlink. Raises :class:`OSError`."""
    with contextlib.ExitStack() as stack:
        for name in names:
            inner = Descriptor()
            inner.open(name, FOLDER, dir_fd=folder_fd)
            folder_fd = stack.enter_context(inner)
        yield folder_fd


def write_in(folder_fd: int, contents: Contents, now_ns: int) -> None:
    """Write the contents into a new folder. Raises :class:`OSError`."""
    for path in sorted(filter(None, contents.folders)):
        *above, name = path.split("/")
        with opened_folder(folder_fd, *above) as inner_fd:
            os.mkdir(name, 0o700, dir_fd=inner_fd)
    for path, (code, mode, time_ns) in contents.files.items():
        *above, name = path.split("/")
        with opened_folder(folder_fd, *above) as inner_fd:
            _write(inner_fd, name, code, mode, (now_ns, min(time_ns, now_ns)))
    for path in sorted(contents.folders, reverse=True):
        with opened_folder(folder_fd, *filter(None, path.split("/"))) as inner_fd:
            os.fchmod(inner_fd, contents.folders[path] & _SAFE_MODES | stat.S_IRWXU)


def _write(folder_fd: int, name: str, code: bytes, mode: int, times_ns: tuple[int, int]) -> None:
    file = Descriptor()
    file.open(name, _CREATE, 0o600, dir_fd=folder_fd)
    with file as fd:
        write_all(fd, code)
        os.fchmod(fd, mode & _SAFE_MODES)
        os.utime(fd, ns=times_ns)
        file.end_writing()


def remove_tree(parent_fd: int, name: str) -> None:
    """Remove a folder with all that is in it, through no symlink. Raises :class:`OSError`."""
    with opened_folder(parent_fd, name) as folder_fd:
        with os.scandir(folder_fd) as found:
            entries = list(found)
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                remove_tree(folder_fd, each.name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each.name, dir_fd=folder_fd)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=parent_fd)


def _look(folder_fd: int, most_bytes: int) -> dict[str, tuple[int, ...]]:
    """Returns what changes when anything in the folder does. Raises :class:`RefusedError` for what is not stored."""
    most_bytes, folder = min(most_bytes, LARGEST_BYTES), os.fstat(folder_fd)
    if folder.st_uid not in (os.geteuid(), 0):
        raise RefusedError("belongs to another user")
    total, seen = 0, {"": _state(folder)}
    for _, path, status in walk(folder_fd):
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            kind = "a symlink" if stat.S_ISLNK(status.st_mode) else "neither a file nor a folder"
            raise RefusedError(f"holds {path}, which is {kind}")
        if status.st_uid not in (os.geteuid(), 0):
            raise RefusedError(f"holds {path} of another user")
        if not _is_path(path):
            raise RefusedError(f"holds {path!r:.80}, whose name cannot be stored")
        total += status.st_size if stat.S_ISREG(status.st_mode) else 0
        seen[path] = _state(status)
        if len(seen) > MOST_FILES:
            raise RefusedError(f"holds more than {counted(MOST_FILES, 'file')}")
        if total > most_bytes:
            raise RefusedError(f"is larger than {format_size(most_bytes)}")
    return seen


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(folder_fd: int, name: str, status: os.stat_result, is_network: bool) -> bytes:
    file = Descriptor()
    file.open(name, READ, dir_fd=folder_fd)
    with file as fd:
        is_other = os.fstat(fd).st_ino != status.st_ino
        if is_other or (not is_network and is_being_written(fd)) or (name.endswith(".lock") and is_locked(fd)):
            raise BusyError(name)
        parts = []
        left = status.st_size + 1  # one more, so that a file which grew is noticed
        while left and (part := os.read(fd, min(left, 1 << 24))):
            parts.append(part)
            left -= len(part)
    if left != 1:
        raise BusyError(name)
    return b"".join(parts)


def _is_mode(value: object) -> bool:
    return type(value) is int and 0 <= value <= 0o7777


def _is_path(path: str) -> bool:
    names = path.split("/")
    try:
        is_short = len(_escape(path).encode()) <= 255
    except UnicodeEncodeError:
        return False
    return is_short and len(names) <= _DEEPEST and not {"", ".", ".."} & set(names) and "\0" not in path


def _escape(path: str) -> str:
    """Returns a path as one name, for ``put_files``; a file that is directly in the folder keeps its name."""
    return path.replace("%", "%25").replace("/", "%2F")


def _unescape(name: str) -> str:
    return _ESCAPED.sub(lambda match: {"25": "%", "2F": "/"}[match[1]], name)
