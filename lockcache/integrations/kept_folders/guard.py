# SPDX-License-Identifier: Apache-2.0
"""Guard of the folders of one pattern: lays down what is stored, and stores what appears while a command runs.

A folder is stored when it is known to be whole, which is

- at once, if it appeared by a rename: a builder that is killed never renames; or
- at the end, if it was written in its place: by a program that renames none; on no network file system; the command
  ended with exit code 0, as did all others that were run with these folders at the same time on this host; something in
  it has changed since; no process works in it; and it holds no lock and no temporary file. So what a killed command
  left is never stored.

Not promised: that a folder written in its place is whole where only a part of the command was killed, and the command
ended well all the same, without that folder.

Keeps invariant 1 (a hit is whole): what is laid down was compared with its digest, is staged next to its place, and
appears by a rename. An entry is never replaced: what a program writes into a folder that was laid down, or that is
stored, changes no entry. Keeps invariant 7 (never take the job down): an error is a line about one folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from typing import Final

from lockcache.calling import joined_files, parted_files
from lockcache.composition import FileStreamProgramCache
from lockcache.errors import in_words
from lockcache.explain import state
from lockcache.filestream.disk import (
    DISK_FULL,
    FOLDER,
    READ,
    Descriptor,
    Recency,
    entry_name,
    is_network,
    last_use_ns,
)
from lockcache.integrations.kept_folders.contents import (
    BusyError,
    Contents,
    RefusedError,
    opened_folder,
    parse_contents,
    read_folder,
    remove_tree,
    walk,
    write_in,
)
from lockcache.integrations.kept_folders.in_use import is_worked_in
from lockcache.integrations.kept_folders.levels import matching_levels, opened_path
from lockcache.integrations.kept_folders.names import StoredNames, is_stored, uncounted
from lockcache.integrations.kept_folders.pattern import Pattern
from lockcache.integrations.kept_folders.presence import Presence
from lockcache.integrations.kept_folders.room import Held, choose, is_unused, measure
from lockcache.integrations.kept_folders.watch import Watch
from lockcache.integrations.staged import reap_folder, staged_name
from lockcache.metadata import COMPILE_COST
from lockcache.resource import LONGEST_NAMESPACE, Entry
from lockcache.single_flight import Turn

__all__ = ["FolderGuard"]

# Whatever the keys stand for in another version of this.
_VERSION: Final = 1
# One process of a host lays down, the others find it done. A holder that is stopped is waited for no longer.
_WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05
# Folders between two additions to the list of names: what is stored and not listed is lost with a killed guard.
_BATCH: Final = 16
_UNLIMITED: Final = 2**62


class FolderGuard:
    """The folders of one pattern, and their entries in a cache."""

    def __init__(
        self,
        cache: FileStreamProgramCache,
        pattern: Pattern,
        *,
        renews: bool = False,
        presences: dict[str, Presence] | None = None,
    ) -> None:
        """``renews``: lay nothing down, and replace what is stored, as ``$LOCKCACHE_RECACHE`` asks for.

        ``presences``: by root, those of one command, whose guards share them.
        """
        self.pattern = pattern
        self._renews = renews
        self._cache = cache
        # Libraries for another processor are other entries: a node's own directory never held those.
        self._key = f"kept-folders/{_VERSION}/{platform.machine()}/{pattern.text}"
        self._namespace = pattern.text[-LONGEST_NAMESPACE:]
        self._names = StoredNames(cache, self._key, self._namespace, pattern.matches)
        self._recency = Recency(cache.path)
        self._root, self._watch = Descriptor(), Watch()
        self._presences = {} if presences is None else presences
        self._presence: Presence | None = None
        self._began_ns, self._is_network = 0, False
        self._waits = True  # until a holder of the root's lock was waited for in vain
        self._found_at_end = list[str]()
        self._done: set[str] = set()
        self._unusable: set[str] = set()  # entries that are replaced
        self._there: set[str] = set()  # those that were stored before, and may have been written to since
        #: Folders that were laid down, and that were stored.
        self.laid = self.stored = 0
        #: What was not done, and why, a line each.
        self.problems: list[str] = []

    @property
    def fd(self) -> int:
        """A descriptor that is ready to be read when :meth:`store_moved` may have something to do; -1 for none."""
        return self._watch.fd

    def lay_down(self) -> None:
        """Put each stored folder in its place that is missing there. Raises :class:`OSError` for the pattern's root."""
        os.makedirs(self.pattern.root, exist_ok=True)
        self._root.open(self.pattern.root, FOLDER & ~os.O_NOFOLLOW)
        self._is_network = is_network(self.pattern.root)
        reap_folder(self.pattern.root)
        if not self._cache._is_only_read:
            self._presence = self._present(os.path.realpath(self.pattern.root))
        self._began_ns = self._now_ns()
        with self._locked(_WAIT_SECONDS):
            self._names.read()
            with uncounted(self._cache):
                for path in () if self._renews else self._chosen():
                    if not self._lay_down(path):
                        break
        self._watch_folders()

    def store_moved(self) -> bool:
        """Store the folders that appeared whole. Returns whether some have to be looked at again."""
        self._read_watch()
        with self._locked(0) as is_locked:
            return self._store(self._moved(), was_moved=True) if is_locked else bool(self._moved())

    def list_folders(self) -> None:
        """List the folders that are there at the command's end, before any guard asks whether all ended well.

        So the list has none of a command that begins afterwards.
        """
        self._found_at_end = self._found()

    def finish(self, *, ended_well: bool) -> None:
        """Store what is left: of folders that were written in their place those that are whole.

        Requires: :meth:`list_folders` was called on all guards of the command.
        """
        self._read_watch()
        may_be_whole = ended_well and self._presence is not None and self._presence.all_ended_well()
        with self._locked(_WAIT_SECONDS):
            self._store(self._moved(), was_moved=True)
            # Who renames folders writes none in its place: such a one is what a killed builder left.
            if may_be_whole and not self._names.has_moved:
                written = [path for path in self._found_at_end if self._was_written(path)]
                if written and self._is_network:  # nobody knows which commands of other hosts write there
                    self._note("", "is on a network file system: what was written in its place is not stored")
                else:
                    self._store(written, was_moved=False)

    def close(self) -> None:
        """Close what is open."""
        self._watch.close()
        self._root.close()
        if self._presence is not None:
            self._presence.close()

    def _present(self, root: str) -> Presence:
        if root not in self._presences:
            self._presences[root] = Presence(self._cache._directory.layout, root)
        return self._presences[root]

    # ---- laying down ----

    def _chosen(self) -> list[str]:
        """Returns the stored folders that are to be laid down, the last used one last, and makes room for them."""
        most_bytes = self._cache.max_size_bytes or _UNLIMITED
        laid, removed = choose(filter(None, map(self._held, self._names.known)), most_bytes)
        for each in removed:
            if is_unused(self.pattern.root, each):
                with contextlib.suppress(OSError):
                    self._remove(each.path)
        return [each.path for each in laid]

    def _held(self, path: str) -> Held | None:
        """Returns a stored folder that is there, or that may be laid down; ``None`` for what is in its place."""
        entry = self._status_of(path)
        used_ns = 0 if entry is None else last_use_ns(entry)
        try:
            with opened_folder(self._root.number, *path.split("/")) as folder_fd:
                self._there.add(path)
                folder_ns, size_bytes = measure(folder_fd)
            if folder_ns > used_ns and not self._cache._is_only_read:
                self._touch(path)
            return Held(folder_ns, path, size_bytes, is_there=True)
        except FileNotFoundError:
            pass
        except (OSError, RefusedError):  # a symlink, for one
            return None
        if entry is None and not self._has_sources():
            return None
        return Held(used_ns, path, 0 if entry is None else entry.st_size, is_there=False)

    def _status_of(self, path: str) -> os.stat_result | None:
        with contextlib.suppress(OSError):
            return os.lstat(self._entry_path(path))
        return None

    def _entry_path(self, path: str) -> str:
        return self._cache._directory.layout.entry(entry_name(self._keyed(path).encode()))

    def _remove(self, path: str) -> None:
        """Remove a folder: at once for who looks for it. Raises :class:`OSError`."""
        staged, root_fd = staged_name("kept"), self._root.number
        *above, name = path.split("/")
        with opened_folder(root_fd, *above) as folder_fd:
            os.rename(name, staged, src_dir_fd=folder_fd, dst_dir_fd=root_fd)
        remove_tree(root_fd, staged)

    def _has_sources(self) -> bool:
        return self._cache._backed is not None or self._cache._seeded is not None

    def _lay_down(self, path: str) -> bool:
        """Put one folder in its place. Returns whether to go on with the others."""
        entry = self._cache.get_entry(self._keyed(path))
        files = None if entry is None else parted_files(entry.code, entry.metadata)
        contents = None if entry is None or files is None else parse_contents(files, entry.metadata)
        if contents is None:
            if self._status_of(path) is not None:  # else it was evicted meanwhile
                self._unusable.add(path)
            return True
        try:
            self._place(path, contents)
            self._there.add(path)
            self.laid += 1
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # else another process was first
                self._note(path, f"is not laid down: {in_words(error)}")
            return error.errno not in DISK_FULL
        return True

    def _place(self, path: str, contents: Contents) -> None:
        staged, root_fd = staged_name("kept"), self._root.number
        *above, name = path.split("/")
        os.mkdir(staged, 0o700, dir_fd=root_fd)
        try:
            with opened_folder(root_fd, staged) as folder_fd:
                write_in(folder_fd, contents, time.time_ns())
            for depth in range(len(above)):
                with opened_folder(root_fd, *above[:depth]) as folder_fd, contextlib.suppress(FileExistsError):
                    os.mkdir(above[depth], dir_fd=folder_fd)
            with opened_folder(root_fd, *above) as folder_fd:
                os.rename(staged, name, src_dir_fd=root_fd, dst_dir_fd=folder_fd)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_tree(root_fd, staged)
            raise

    def _touch(self, path: str) -> None:
        """Count the use of a folder as one of its entry."""
        layout = self._cache._directory.layout
        with contextlib.suppress(OSError), layout.reach.open(self._entry_path(path), READ) as fd:
            self._recency.touch(fd)

    # ---- storing ----

    def _moved(self) -> list[str]:
        return sorted(path for path in self._watch.moved - self._done if self.pattern.matches(path))

    def _was_written(self, path: str) -> bool:
        """Returns whether a folder is new, or was never stored, and something in it has changed since the start."""
        if path in self._done or path in self._there:
            return False
        with (
            contextlib.suppress(OSError, RefusedError),
            opened_folder(self._root.number, *path.split("/")) as folder_fd,
        ):
            changed = max((status.st_ctime_ns for _, _, status in walk(folder_fd)), default=0)
            return changed > self._began_ns and not is_worked_in(os.path.join(self.pattern.root, path))
        return False

    def _store(self, paths: list[str], *, was_moved: bool) -> bool:
        """Store folders, if they are whole. Returns whether some are being written."""
        is_left, new = False, list[str]()
        for path in () if self._cache._is_only_read else paths:
            try:
                with uncounted(self._cache):
                    if self._store_one(path, was_moved=was_moved):
                        new.append(path)
                self._done.add(path)
            except BusyError:
                is_left = True
            except FileNotFoundError:
                self._watch.moved.discard(path)
            except RefusedError as error:
                self._note(path, f"{error}; it is not stored")
                self._done.add(path)
            except OSError as error:
                self._note(path, f"is not stored: {in_words(error)}")
                self._done.add(path)
            if len(new) >= _BATCH:
                self._names.add(new, was_moved=was_moved)
                new = []
        self._names.add(new, was_moved=was_moved)
        return is_left

    def _store_one(self, path: str, *, was_moved: bool) -> bool:
        """Store one folder, unless it is stored. Returns whether it is."""
        key, most_bytes = self._keyed(path), self._cache.max_size_bytes or _UNLIMITED
        replaces = self._renews or path in self._unusable
        if not replaces and is_stored(self._cache, key):
            return True
        with opened_folder(self._root.number, *path.split("/")) as folder_fd:
            contents = read_folder(folder_fd, most_bytes, was_moved=was_moved, is_network=self._is_network)
        if not contents.files:
            return False
        # Who compiled it took no turn, so what it cost is not known.
        known = {"kind": "folder", "namespace": self._namespace, COMPILE_COST: 0, **contents.as_metadata()}
        entry = Entry(*joined_files(contents.as_files(), known))
        if replaces:
            state(key.encode(), {}, path)
            self._cache.put_entry(key, entry)
        else:
            found = self._cache.begin(key, label=path)
            if not isinstance(found, Turn):
                return True
            with found as turn:
                turn.store(entry)
        if not is_stored(self._cache, key):
            self._note(path, "is not stored: there is no room, or the directory cannot be written")
            return False
        self.stored += 1
        return True

    # ---- the folders there ----

    def _found(self) -> list[str]:
        """Returns all folders that match the pattern."""
        *_, found = matching_levels(self._root.number, self.pattern)
        return sorted(found)

    def _read_watch(self) -> None:
        self._watch.read()
        if self._watch.has_news:
            self._watch.has_news = False
            self._watch_folders(are_new=not self._is_network)

    def _watch_folders(self, *, are_new: bool = False) -> None:
        """Watch the folders in which others appear that match, and those above them, each before it is listed."""
        for _, paths in zip(self.pattern.levels, matching_levels(self._root.number, self.pattern), strict=False):
            for path in paths:
                with contextlib.suppress(OSError), opened_path(self._root.number, path) as folder_fd:
                    self._watch.add(folder_fd, f"{path}/" if path else "", is_new=are_new)

    def _keyed(self, path: str) -> str:
        return f"{self._key}{path}"

    def _now_ns(self) -> int:
        """Returns the time by the clock that changes in the root are stated in. Raises :class:`OSError`."""
        name, root_fd = staged_name("kept"), self._root.number
        os.mkdir(name, 0o700, dir_fd=root_fd)
        try:
            return os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_ctime_ns
        finally:
            os.rmdir(name, dir_fd=root_fd)

    @contextlib.contextmanager
    def _locked(self, seconds: float) -> Iterator[bool]:
        """Hold the root's lock, so that processes of a host do not copy the same. Yields whether it is free, or none.

        Nothing rests on it. Where it cannot be had (NFS, or a holder that is stopped), several copy the same.
        """
        root_fd, until, is_locked = self._root.number, time.monotonic() + seconds, False
        try:
            while not is_locked:
                try:
                    fcntl.flock(root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_locked = True
                except BlockingIOError:
                    if time.monotonic() >= until or not self._waits:
                        self._waits = self._waits and not seconds
                        break
                    time.sleep(_PAUSE_SECONDS)
                except OSError:
                    is_locked = True
            yield is_locked
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(root_fd, fcntl.LOCK_UN)

    def _note(self, path: str, what: str) -> None:
        self.problems.append(f"{os.path.join(self.pattern.root, path)} {what}")
