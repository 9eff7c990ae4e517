# SPDX-License-Identifier: Apache-2.0
"""A pyptx directory, as many processes use it: ``<hash>.ptx``, ``<hash>.cubin`` and ``<hash>.json`` as one entry.

Keeps invariant 1 (a hit is whole) with :mod:`.sidecar`: reads take no lock, and a reader that meets files of two
writers finds that the digest does not bind them, and looks again. It finds the old entry or the new one at every
instant, never neither: the old one is kept (:mod:`.backup`) until the new one is whole. Death between any two steps
therefore leaves one of the two (invariant 5, death is free), and what the dead had staged goes with the next write. For
pyptx's own readers, who verify nothing and see no entry meanwhile, the json is removed first and published last: never
a mixed one. Locks only keep writers from undoing each other's work (invariant 6, locks coordinate).

Next to the files there is one directory, ``lockcache/``, which pyptx passes over: locks, staged files, a daemon's
files. Removing an entry takes the lock of its first hex digit, and removes the json, then the others. A daemon finds
the names with :meth:`PyptxFiles.scan` and evicts with :meth:`PyptxFiles.evict`, which looks again under the lock.

Not promised: that one of pyptx's own readers, which look for the json first and the cubin last, gets the cubin of an
entry that is removed between the two; it gets PTX and metadata, which are whole.
"""

from __future__ import annotations

import contextlib
import enum
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from lockcache.filestream.disk import GuestLayout, ProcessLock, ReadRecency, make_private_folder, write_all
from lockcache.integrations.pyptx_directory.backup import (
    Place,
    forget_kept,
    keep_locked,
    kept_names,
    kept_place,
    remove_files,
    settle_locked,
)
from lockcache.integrations.pyptx_directory.listing import changed_ns, look, scan
from lockcache.integrations.pyptx_directory.read import Loaded, load_with, opened_part, read_opened, read_part
from lockcache.integrations.pyptx_directory.sidecar import File, pack
from lockcache.integrations.staged import reap_staged, reap_staged_in, staged_bytes, staged_name
from lockcache.lowlevel import Found, Layout, check_directory

__all__ = ["PyptxFiles", "guest_layout"]

_STAGE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

# A reader looks again when a writer was at work between its first file and its last, 20 us later. Next to writers that
# rewrite its key without a pause that is one look in ten; as often as this, and it is a miss.
_LOOKS: Final = 64
# An entry that is replaced has its json here or there at every instant, but a look at both takes two. So what was in
# neither place, or was damaged, must be so a second time.
_MISSES: Final = 2
_LOCK_TIMEOUT_SECONDS: Final = 5.0
# A name without its json or its PTX: so long after its last change no writer is at it any more, which takes
# milliseconds. By ctime, so that a copy that keeps times and is still under way is not taken for what somebody left.
_LEFT_SECONDS: Final = 60.0


def guest_layout(root: str) -> Layout:
    """lockcache's paths in a directory that is pyptx's: all of them below ``lockcache/``."""
    layout = GuestLayout(root)
    layout.tmp = os.path.join(layout.own, "staged")
    return layout


class _Finding(enum.Enum):
    """Why a look gave no entry."""

    MISSING = enum.auto()
    DAMAGED = enum.auto()
    #: Somebody wrote meanwhile.
    CHANGED = enum.auto()


class PyptxFiles:
    """The entries of one directory."""

    def __init__(self, root: str, lock_timeout_seconds: float = _LOCK_TIMEOUT_SECONDS) -> None:
        """Make ``root`` (mode 0700) if it is missing.

        Raises :class:`UnsafeCacheDirError` if somebody else owns it or may write to it, or the plain :class:`OSError`.
        """
        self.root = root
        self.layout = layout = guest_layout(root)
        self._main, self._kept = self._places = Place(root), kept_place(layout)
        self._recency = ReadRecency(root)
        self._locks = {
            digit: ProcessLock(f"{layout.locks}/{digit}", lock_timeout_seconds, layout=layout) for digit in _DIGITS
        }
        self._make_root()
        check_directory(layout, False)

    def stamp(self, name: str) -> bytes:
        """The json file's bytes; empty where there is none that can be read."""
        for _ in range(_MISSES):
            for place in self._places:
                found = read_part(place, name, "json")
                if found is not None:
                    return found.content
        return b""

    def load(self, name: str, key: Mapping[str, Any]) -> tuple[Loaded | None, bool]:
        """The entry of ``key``, and whether what was found there was damaged. Raises nothing for what it finds."""
        seen: list[_Finding] = []
        for _ in range(_LOOKS):
            found = self._look(name, key)
            if isinstance(found, Loaded):
                return found, False
            seen.append(found)
            if found is not _Finding.CHANGED and seen[-_MISSES:] == [found] * _MISSES:
                return None, found is _Finding.DAMAGED
        return None, False

    def _look(self, name: str, key: Mapping[str, Any]) -> Loaded | _Finding:
        for place in self._places:
            with opened_part(place, name, "json") as fd:
                sidecar = read_opened(fd)
                if sidecar is None:
                    continue
                loaded = load_with(place, sidecar, name, key)
                if loaded is not None:
                    self._recency.touch(fd)
                    return loaded
                return self._why_not(fd, sidecar, place, name)
        return _Finding.MISSING

    def _why_not(self, fd: int, sidecar: File, place: Place, name: str) -> _Finding:
        """Returns whether a writer was at work: lockcache's removes the json file, pyptx's overwrites it."""
        with opened_part(place, name, "json") as now:
            is_same = now >= 0 and os.path.samestat(os.fstat(now), os.fstat(fd))
            found = read_opened(now)
        if is_same and found is not None and found.content == sidecar.content:
            return _Finding.DAMAGED
        return _Finding.CHANGED

    def store(
        self, name: str, key: Mapping[str, Any], metadata: Mapping[str, Any], ptx: bytes, cubin: bytes | None
    ) -> bytes:
        """Publish an entry; returns its json file's bytes.

        Raises :class:`OSError`; then an older entry is gone, if it could be removed. Raises as :func:`pack` does.
        """
        sidecar = pack(name, key, metadata, ptx, cubin)
        parts = {"ptx": ptx, "json": sidecar} if cubin is None else {"cubin": cubin, "ptx": ptx, "json": sidecar}
        try:
            self._publish(name, parts)
        except OSError:
            # What must no longer be served. Without the lock, which may be what failed: at worst this is one miss.
            with contextlib.suppress(OSError):
                self.discard(name)
            raise
        return sidecar

    def discard(self, name: str) -> None:
        """Make an entry one no more: remove its json, and what is kept of it. Raises :class:`OSError`."""
        forget_kept(self._kept, name)
        remove_files(self._main, name, ("json",))

    def remove(self, name: str) -> None:
        """Remove an entry with all its files. Raises :class:`OSError`."""
        with self._locks[name[0]]:
            self._remove_locked(name)

    def evict(self, found: Found) -> bool:
        """Remove an entry that nobody wrote or used since :meth:`scan` found it; whether that was so.

        Raises :class:`LockTimeoutError` where a writer keeps the lock, else as :meth:`remove`.
        """
        with self._locks[found.name[0]]:
            is_unchanged = look(self.root, found.name) == found
            if is_unchanged:
                self._remove_locked(found.name)
        return is_unchanged

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead writers left: staged, and of those of ``names`` that are not entries. Raises as remove.

        An entry that one of them was replacing is an entry again.
        """
        self._settle(reap_staged(self.layout))
        for name in names:
            if self._is_left(name):
                with self._locks[name[0]]:
                    if self._is_left(name):
                        self._remove_locked(name)

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """The entries of the directory: see :func:`.listing.scan`."""
        return scan(self.root, between)

    def staged_bytes(self) -> int:
        """Bytes of what writers have staged. Raises :class:`OSError`."""
        return staged_bytes(self.layout)

    def names(self) -> dict[str, int]:
        """The entries (a json and a PTX), and the bytes of each with all its files."""
        return {found.name: found.size_bytes for found in self.scan() if found.inode}

    def clear(self) -> None:
        """Remove every entry, and what is left of any. Safe while others write. Raises :class:`OSError`."""
        for found in self.scan():
            self.remove(found.name)
        for name in kept_names(reap_staged(self.layout)):
            self.remove(name)

    def prepare(self) -> None:
        """Make what is missing of the directories, as the first write does. Raises :class:`OSError`."""
        if not os.path.isdir(self.layout.tmp):
            self._make_root()
            self.layout.reach.make_folder(self.layout.own)
            self.layout.reach.make_folder(self.layout.tmp)

    def close(self) -> None:
        """Close the locks. The next use opens them again."""
        for lock in self._locks.values():
            lock.close()

    def _is_left(self, name: str) -> bool:
        found = look(self.root, name)
        if found is None or found.inode or os.path.lexists(self._kept.path(name, "json")):
            return False
        return time.time() - changed_ns(self.root, name) / 1e9 >= _LEFT_SECONDS

    def _settle(self, files: Iterable[str]) -> None:
        """End what dead writers had begun, of whom these files are. Raises nothing and waits for nobody.

        The next write tries again.
        """
        for name in kept_names(files):
            lock = self._locks[name[0]]
            with contextlib.suppress(OSError):
                if self._is_kept_for_long(name) and lock.try_acquire():
                    try:
                        settle_locked(self._main, self._kept, name)
                    finally:
                        lock.release()

    def _is_kept_for_long(self, name: str) -> bool:
        return time.time() - changed_ns(self._kept.folder, name, self._kept.ending) / 1e9 >= _LEFT_SECONDS

    def _publish(self, name: str, parts: dict[str, bytes]) -> None:
        staged: dict[str, str] = {}
        self.prepare()
        with self._main.held_open() as main, self._kept.held_open() as kept:
            try:
                for suffix, content in parts.items():
                    staged[suffix] = staged_name(suffix, name)
                    _stage(kept.fd, staged[suffix], content)
                with self._locks[name[0]]:
                    _replace_locked(main, kept, name, staged)
            finally:
                for file in staged.values():
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(file, dir_fd=kept.fd)
            files = reap_staged_in(kept.fd)
        self._settle(files)

    def _remove_locked(self, name: str) -> None:
        forget_kept(self._kept, name)  # first, or else it would be the entry
        remove_files(self._main, name)

    def _make_root(self) -> None:
        if not os.path.isdir(self.root):
            os.makedirs(os.path.dirname(self.root), exist_ok=True)
            make_private_folder(self.root)


def _replace_locked(main: Place, kept: Place, name: str, staged: dict[str, str]) -> None:
    """Requires: both held open, and the lock of the name's first digit, for the sake of other writers; see the module.

    ``staged``: the names of the files, by suffix; those that have their place are taken out.
    """
    # The older one is read from there until the json, the last of them, is in place.
    keep_locked(main, kept, name)
    # All of it first: without the json there is no entry for pyptx, and ext4 writes out at once what is renamed onto
    # another file (measured: 100 us instead of 20 onto a free name, milliseconds on a busy disk).
    remove_files(main, name)
    for suffix in list(staged):
        os.rename(staged[suffix], main.file(name, suffix), src_dir_fd=kept.fd, dst_dir_fd=main.fd)
        del staged[suffix]
    forget_kept(kept, name)


def _stage(folder_fd: int, file: str, content: bytes) -> None:
    fd = os.open(file, _STAGE, 0o600, dir_fd=folder_fd)
    try:
        write_all(fd, content)
    finally:
        os.close(fd)


_DIGITS: Final = "0123456789abcdef"
