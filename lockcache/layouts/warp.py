"""A Warp cache (``$WARP_CACHE_PATH``, ``~/.cache/warp``), kept while Warp uses it: a module's directory is one entry.

Keeps the promise that no process sees a part of a module: its directory ``wp_*``, in the root or in the folder of a
Warp's version, goes whole, by one rename into ``lockcache/condemned``, and what a process has opened stays readable.
Nothing goes that changed in the last ``settle_seconds``: Warp moves a finished directory into place, and then adds
files of other devices to it, without a lock.

Death between the rename and the removal leaves a directory in ``condemned/`` that the next daemon removes (invariant 5,
death is free). Not promised: that Warp survives losing a module between asking for its files and opening them, a
millisecond later. Unlike Triton it asks for nothing but what it opens, so there is nothing to take away first.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lockcache.filestream.disk import last_use_ns, next_serial
from lockcache.layouts.openat import folder, opened_root, status_in, unlink_in
from lockcache.layouts.own_folder import GuestFiles
from lockcache.layouts.protocol import described
from lockcache.lowlevel import Described, Found

_MODULE: Final = re.compile(r"wp_[\w.-]+", re.ASCII)
# The name of a folder in which a module is compiled, until it is renamed into place.
_BUILD: Final = re.compile(r"wp_[\w.-]+_p\d+_t\d+", re.ASCII)
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*", re.ASCII)
_HASH: Final = re.compile(r"_[0-9a-f]{7}$", re.ASCII)
_ARCH: Final = re.compile(r"\.(sm_?\d+\w*)\.", re.ASCII)

#: One of each makes a module.
_BINARIES: Final = (".o", ".ptx", ".cubin")
_METADATA: Final = ".meta"

# Files of a killed compiler stay for so long: no module takes longer.
_COMPILING_SECONDS: Final = 3600.0

# A stat of each at every tick. Those that changed last are where the next file is most likely to come.
_MOST_WATCHED: Final = 256


@dataclass(frozen=True)
class ModuleFolder:
    """One module's directory as it was found."""

    #: Its path below the root; the inode is 0 where it is not a whole module.
    found: Found
    names: tuple[str, ...]
    inode: int
    #: When anything in it was last written, put there, or taken away: the ctime, which no copy can set.
    changed_ns: int
    folder_mtime_ns: int


class WarpFiles(GuestFiles):
    """The entries of one Warp cache. For one thread."""

    layout_name = "warp"

    def prepare(self) -> None:
        """Make what is missing of our own directories, and remove what a dead daemon had condemned."""
        super().prepare()
        self._make_condemned()
        with self._condemned() as condemned_fd:
            for name in os.listdir(condemned_fd):
                _remove(condemned_fd, name)

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields every module's directory. The inode is 0 for one that is not a whole module."""
        changed: list[tuple[int, str]] = []
        for module in scan(self._root_fd, between):
            changed.append((module.folder_mtime_ns, module.found.name))
            yield module.found
        latest = [name for _, name in sorted(changed, reverse=True)[:_MOST_WATCHED]]
        self._watched = [*_homes(self._root_fd), *latest]

    def evict(self, found: Found) -> bool:
        """Remove a module if it is unchanged and at rest. Returns whether it was removed. Raises :class:`OSError`."""
        module = look(self._root_fd, found.name)
        if module is None or module.found != found or not self._rests(module, self.settle_seconds):
            return False
        return self._take(module)

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead daemons left staged, and among ``names`` what long dead compilers left."""
        super().reap(names)
        for name in names:
            module = look(self._root_fd, name)
            if module is not None and not module.found.inode and self._rests(module, _COMPILING_SECONDS):
                self._take(module)

    def _rests(self, module: ModuleFolder, seconds: float) -> bool:
        return time.time() - module.changed_ns / 1e9 >= max(seconds, self.settle_seconds)

    def _take(self, module: ModuleFolder) -> bool:
        """Rename a module's directory away, and remove it. Returns whether it was still the one that was seen."""
        home, name = os.path.split(module.found.name)
        gone = f"{os.getpid()}.{next_serial():x}"
        with folder(self._root_fd, home) as home_fd, self._condemned() as condemned_fd:
            if home_fd is None:
                return False
            try:
                os.rename(name, gone, src_dir_fd=home_fd, dst_dir_fd=condemned_fd)
            except FileNotFoundError:
                return False
            status = status_in(condemned_fd, gone)
            if status is not None and status.st_ino != module.inode:  # a compiler has just put another there
                os.rename(gone, name, src_dir_fd=condemned_fd, dst_dir_fd=home_fd)
                return False
            _remove(condemned_fd, gone)
        return True


def scan(root_fd: int, between: Callable[[], object] = lambda: None) -> Iterator[ModuleFolder]:
    """Yields every module's directory, in no order. ``between`` is called before each, and may raise to give up."""
    for home in _homes(root_fd):
        for name in _folders_in(root_fd, home):
            if _MODULE.fullmatch(name):
                between()
                seen = look(root_fd, f"{home}/{name}" if home else name)
                if seen is not None:
                    yield seen


def look(root_fd: int, path: str) -> ModuleFolder | None:
    """Returns a module's directory as it is now; ``None`` if there is none, or one that Warp never made.

    Warp makes no folders in it: a directory that contains a folder belongs to another program.
    """
    name = os.path.basename(path)
    with folder(root_fd, path) as fd:
        if fd is None or not _MODULE.fullmatch(name):
            return None
        files: dict[str, os.stat_result] = {}
        with os.scandir(fd) as listed:
            for each in listed:
                if each.is_dir(follow_symlinks=False):
                    return None
                status = status_in(fd, each.name)
                if status is not None:
                    files[each.name] = status
        itself = os.fstat(fd)
    is_whole = not _BUILD.fullmatch(name) and _has(files, _BINARIES) and _has(files, (_METADATA,))
    return ModuleFolder(
        Found(
            max(map(last_use_ns, files.values()), default=itself.st_mtime_ns),
            path,
            sum(status.st_size for status in files.values()),
            itself.st_ino if is_whole else 0,
        ),
        tuple(sorted(files)),
        itself.st_ino,
        max(status.st_ctime_ns for status in (itself, *files.values())),
        itself.st_mtime_ns,
    )


def is_warp(root_fd: int) -> bool:
    """Returns whether modules that Warp compiled are here."""
    return any(any(name.endswith(_METADATA) for name in module.names) for module in scan(root_fd))


def view_entries(root: str, between: Callable[[], object]) -> Iterator[Found]:
    """Yields every module's directory, and changes nothing."""
    with opened_root(root) as fd:
        for module in scan(fd, between):
            yield module.found


def describe_entry(root: str, found: Found) -> Described:
    """Returns the description of an entry by its name and those of its files."""
    with opened_root(root) as fd:
        module = look(fd, found.name)
    names = () if module is None else module.names
    kind = next((suffix[1:] for suffix in reversed(_BINARIES) if _has(names, (suffix,))), None)
    arch = next((match[1] for name in names if (match := _ARCH.search(name))), None)
    label = _HASH.sub("", os.path.basename(found.name).removeprefix("wp_"))
    return described(found, kind=kind, arch=arch, label=label)


def _has(names: Iterable[str], suffixes: tuple[str, ...]) -> bool:
    return any(name.endswith(suffixes) for name in names)


def _homes(root_fd: int) -> list[str]:
    """Returns the folders of modules: the root itself, which Warp used before 1.13, and one for each version."""
    return ["", *(name for name in _folders_in(root_fd, "") if _VERSION.fullmatch(name))]


def _folders_in(root_fd: int, path: str) -> list[str]:
    with folder(root_fd, path) as fd:
        if fd is None:
            return []
        with os.scandir(fd) as listed:
            return [each.name for each in listed if each.is_dir(follow_symlinks=False)]


def _remove(condemned_fd: int, name: str) -> None:
    with folder(condemned_fd, name) as fd:
        if fd is None:
            return
        for file in os.listdir(fd):
            unlink_in(fd, file)
    os.rmdir(name, dir_fd=condemned_fd)
