# SPDX-License-Identifier: Apache-2.0
"""The directory of an experiment: made once, and put back to its beginning before each run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache.filestream import EntryWriter
from lockcache.filestream.accounting import NOT_COUNTED, Head, encode_page, folder_of, replace_state
from lockcache.filestream.disk import make_private_folder
from lockcache.lowlevel import CacheDirectory, Layout, Policy, entry_name
from lockcache_stress.experiments import die
from lockcache_stress.schedules.operations import (
    FAR,
    FAR_SHARD,
    KEY,
    LOCK_SECONDS,
    NEAR,
    NEW,
    OLDER,
    OTHER,
    SPACE,
    Actor,
    Begin,
    Operation,
    open_cache,
)
from lockcache_stress.schedules.worker import Stepper

_OLD_SECONDS: Final = 100.0


class Workplace:
    """The directory of one experiment, which is put back to its beginning before each run."""

    def __init__(self, root: str, begin: Begin) -> None:
        self.root, self.begin = root, begin
        self.layout = Layout(root)
        self.cap: int | None = None
        self._files: list[tuple[str, bytes, dict[str, bytes], tuple[int, int]]] = []
        self._folders: list[str] = []
        if not begin.is_missing:
            self._make()
            self._remember()

    def _make(self) -> None:
        layout = self.layout
        for folder in (layout.root, layout.own, layout.tmp):
            make_private_folder(folder)
        # Files count as on a file system where neither folders nor attributes take blocks: alike on all of them.
        replace_state(layout, encode_page(Head(folder_of(layout) + NOT_COUNTED, SPACE, Policy())))
        with self.open() as cache:
            if self.begin.has_older:
                cache.put_entry(KEY, OLDER)
            for key in () if self.begin.is_bare else (*NEAR, FAR):
                cache.put_entry(key, OTHER)
            cache.recount()
        if self.begin.has_dead:
            self._leave_dead()
        if self.begin.has_empty_folder:
            make_private_folder(layout.entry_shard(FAR_SHARD))
        if self.begin.is_capped:
            directory = CacheDirectory(self.root, LOCK_SECONDS)
            free = 2 if self.begin.is_bare else int(not self.begin.is_full)
            self.cap = directory.usage().total_bytes() + free * SPACE.block_bytes
            directory.close()
            FileStreamProgramCache(self.root, max_size_bytes=self.cap).close()

    def _leave_dead(self) -> None:
        with self.open() as cache:
            cache.stats()
            if die(lambda: cache.put_entry(NEW, OTHER), 1, ("rename",)) is None:
                raise RuntimeError("a put makes no call to rename any more, and this has to follow")

    def _remember(self) -> None:
        """Keep the files. The older ones are older: the key's entry was used first, and what the dead left is old."""
        for number, key in enumerate((KEY, *NEAR, FAR)):
            path = self.layout.entry(entry_name(key))
            if os.path.exists(path):
                used = time.time() - _OLD_SECONDS + number
                os.utime(path, (used, used))
        for folder, _, files in os.walk(self.root):
            self._folders.append(folder)
            for file in files:
                path = os.path.join(folder, file)
                status = os.lstat(path)
                with open(path, "rb") as opened:
                    content = opened.read()
                attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
                old_ns = int((time.time() - _OLD_SECONDS) * 1e9)
                times = (status.st_atime_ns, status.st_mtime_ns) if "/entries/" in path else (old_ns, old_ns)
                self._files.append((path, content, attributes, times))

    def open(self) -> FileStreamProgramCache:
        """Returns a cache object, as each process of the experiment has one."""
        return open_cache(self.root, record_files=self.begin.has_record_files)

    def reset(self) -> None:
        """Put the directory back to its beginning."""
        keep = {self.root, self.layout.own}  # the page states the inode of this one
        if self.begin.is_missing:
            shutil.rmtree(self.root, ignore_errors=True)
            return
        _empty(self.root, keep)
        for folder in self._folders:
            if folder not in keep:
                os.mkdir(folder, 0o700)
        for path, content, attributes, times in self._files:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(fd, content)
            for name, value in attributes.items():
                os.setxattr(fd, name, value)
            os.close(fd)
            os.utime(path, ns=times)

    def act_of(
        self, operation: Operation, number: int, plant: Callable[[], None] | None
    ) -> Callable[[Stepper], Callable[[], None]]:
        """Returns what prepares the operation in its process, and returns it. ``plant``: breaks the library there."""

        def prepare(stepper: Stepper) -> Callable[[], None]:
            if plant is not None:
                plant()
            cache = None
            if not operation.opens:
                cache = self.open()
                vars(EntryWriter)["_puts"].__set__(
                    cache._parts.writer, 0
                )  # so that a put does not reap: that is an operation of its own
                stepper.closing.append(cache.close)
            actor = Actor(stepper, number, self.root, cache)
            return lambda: operation.act(actor)

        return prepare


def _empty(folder: str, keep: set[str]) -> None:
    with os.scandir(folder) as found:
        for each in found:
            if not each.is_dir(follow_symlinks=False):
                os.unlink(each.path)
                continue
            _empty(each.path, keep)
            if each.path not in keep:
                os.rmdir(each.path)
