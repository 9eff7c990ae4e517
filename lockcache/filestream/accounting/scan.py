# SPDX-License-Identifier: Apache-2.0
"""Walking a shard: what is there, and what it adds up to.

Decides what counts as an entry (a regular file with an entry's name; all else is passed over) and how many bytes it
counts for: what its payload takes on disk, its record file, if it has one (:mod:`.disk.space`), and the views of it, as
their names say. Relied on by eviction, recounting, ``len`` and opening, so that all of them agree. Not promised: a
consistent picture while writers go on; a caller that needs one holds the shard's lock.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lockcache.filestream.accounting.state import Slot, space_of
from lockcache.filestream.disk import (
    Folder,
    Layout,
    QuarantinedName,
    Reach,
    StagedName,
    ViewName,
    is_entry_file,
    last_use_ns,
    parse_quarantined_name,
    parse_staged_name,
    parse_view_name,
    restate,
)

# Files between two calls of ``between``: 4 ms, or 50 where cores are busy.
_ASK_EVERY: Final = 1024

#: Later than any entry was used.
ANY_TIME_NS: Final = 2**63


def _nothing() -> None:
    """Do nothing: the default for callers that never give up."""


class Found(NamedTuple):
    """One entry on disk. Ordered by last use, oldest first, then by name."""

    last_use_ns: int
    name: str
    #: The bytes that payload, record file and views take on disk.
    size_bytes: int
    inode: int
    #: The lengths of payload and record file; 0 where nobody asks, in directories of other programs.
    stored_bytes: int = 0


class ShardFolders:
    """The folders of a directory's shards, for listing many of them: the folders above them are opened once.

    Make a new one after a wait: a folder that was deleted and made again meanwhile looks empty in this one.
    """

    __slots__ = ("_entries", "_of_file", "_reach", "_records", "_restated_by", "_views")

    def __init__(self, layout: Layout, *, evicts: bool = False) -> None:
        """``evicts``: uses that are dated to come are dated to now, so that their entries age like the others."""
        self._reach = layout.reach
        self._restated_by = layout.tmp if evicts else None
        self._of_file = (layout.space or space_of(layout)).of_file
        opened = self._reach.opened_if_there
        self._entries = opened(layout.entries)
        # Mostly there are no record files, and asking is cheaper than an exception. A dangling symlink leads nowhere.
        has_records = os.access(layout.records, os.F_OK, effective_ids=True)
        self._records = opened(layout.records) if has_records else None
        # A shard without a folder of records has no views either: see :meth:`.Space.of_shard_folders`.
        has_views = has_records and os.access(layout.views, os.F_OK, effective_ids=True)
        self._views = opened(layout.views) if has_views else None

    def scan(
        self, shard: int, latest_ns: int = ANY_TIME_NS, between: Callable[[], object] = _nothing
    ) -> Iterator[Found]:
        """Yields the entries of one shard: see :func:`scan_shard`."""
        of_file, prefix = self._of_file, f"{shard:02x}"
        records = {file: status for file, status, _ in _files(self._reach, self._records, prefix, between=between)}
        views = Counter[str]()
        for view in self.views(shard) if self._views is not None else ():
            views[view.entry[2:]] += view.size_bytes
        entries = _files(self._reach, self._entries, prefix, latest_ns, between, self._restated_by)
        for file, status, used_ns in entries:
            size, stored = of_file(status), status.st_size
            if records and file in records:
                size += of_file(records[file])
                stored += records[file].st_size
            if views:
                size += views[file]
            yield Found(used_ns, prefix + file, size, status.st_ino, stored)

    def entries(self, shard: int, between: Callable[[], object]) -> Iterator[tuple[str, os.stat_result, int]]:
        """Yields the files of entries, by their names in the shard's folder, and when each was used last."""
        return _files(self._reach, self._entries, f"{shard:02x}", between=between)

    def records(self, shard: int, between: Callable[[], object]) -> Iterator[tuple[str, os.stat_result, int]]:
        """Yields the record files, by the same names."""
        return _files(self._reach, self._records, f"{shard:02x}", between=between)

    def views(self, shard: int) -> list[ViewName]:
        """Returns the views of entries, also of those that are gone."""
        views = self._views
        folder = views and self._reach.opened_if_there(f"{views.path}/{shard:02x}", views)
        if folder is None:
            return []
        with folder:
            return _view_names(shard, os.listdir(folder.number))


def scan_shard(
    layout: Layout, shard: int, latest_ns: int = ANY_TIME_NS, between: Callable[[], object] = _nothing
) -> Iterator[Found]:
    """Yields the entries of one shard, in no order, but for those used after ``latest_ns``.

    ``between`` is called after every thousand files, and may raise to give up: a shard may be of any size.
    """
    return ShardFolders(layout).scan(shard, latest_ns, between)


def count_shard(layout: Layout, shard: int) -> int:
    """Returns the number of entries in one shard, without a call for each (the directory states their type)."""
    entries = layout.reach.opened_if_there(layout.entries)
    folder = entries and layout.reach.opened_if_there(layout.entry_shard(shard), entries)
    if folder is None:
        return 0
    with folder, os.scandir(folder.number) as found:
        return sum(1 for file in found if is_entry_file(file.name) and file.is_file(follow_symlinks=False))


def scan_records(layout: Layout, shard: int, between: Callable[[], object] = _nothing) -> list[str]:
    """Yields the names of the entries that have a record file in this shard. ``between``: as for :func:`scan_shard`."""
    return [f"{shard:02x}{file}" for file, _, _ in ShardFolders(layout).records(shard, between)]


def scan_views(layout: Layout, shard: int) -> list[ViewName]:
    """Returns the views of entries in this shard, also of those that are gone."""
    if not os.access(layout.view_shard(shard), os.F_OK, effective_ids=True):
        return []
    return _view_names(shard, names_in(layout, layout.view_shard(shard)))


def _view_names(shard: int, names: list[str]) -> list[ViewName]:
    return [view for name in names if (view := parse_view_name(shard, name)) is not None]


def measure_shard(
    layout: Layout, shard: int, beside_bytes: int | None = None, between: Callable[[], object] = _nothing
) -> Slot:
    """Returns what the accounting should say of a shard: entries, views, quarantined ones, and what is reserved.

    ``beside_bytes``: the bytes of the latter two, from :func:`bytes_beside`, which lists their folders once for all
    shards. ``between``: as for :func:`scan_shard`.
    """
    return measure_shard_in_full(layout, shard, beside_bytes, between)[0]


def measure_shard_in_full(
    layout: Layout, shard: int, beside_bytes: int | None = None, between: Callable[[], object] = _nothing
) -> tuple[Slot, int]:
    """Measure like :func:`measure_shard`. Returns also the bytes stored in the entries: the lengths of their files."""
    # Not by scan_shard, which costs half as much again: the daemon measures all day.
    folders, space = ShardFolders(layout), space_of(layout)
    of_file = space.of_file
    taken = stored = 0
    names = set()
    for file, status, _ in folders.entries(shard, between):
        names.add(file)
        taken += of_file(status)
        stored += status.st_size
    for file, status, _ in folders.records(shard, between):
        if file in names:
            taken += of_file(status)
            stored += status.st_size
    taken += sum(view.size_bytes for view in folders.views(shard))
    if beside_bytes is None:
        beside_bytes = bytes_beside(layout, shard)[shard]
    return Slot(taken + beside_bytes + space.of_shard_folders(layout.shard_folders(shard)), len(names)), stored


def has_entry(layout: Layout, name: str) -> bool:
    """Returns whether the directory itself has an entry, damaged or not, for the effective user, as opening it does."""
    return os.access(layout.entry(name), os.F_OK, effective_ids=True)


def bytes_beside(layout: Layout, shard: int | None = None) -> Counter[int]:
    """Returns by shard the bytes that count and are not entries: reserved by staged files, and in quarantine.

    With ``shard``, only of that one.
    """
    found: Counter[int] = Counter()
    for staged in staged_files(layout, shard):
        found[staged.shard] += staged.size_bytes
    for name, size in quarantined_files(layout, shard):
        found[name.shard] += size
    return found


def staged_files(layout: Layout, shard: int | None = None) -> Iterator[StagedName]:
    """Yields the staged writes of every process, by their names; with ``shard``, those to that one."""
    # To look at a name first is cheap, whatever others put there.
    prefix = "" if shard is None else f"{shard:02x}."
    for file in names_in(layout, layout.tmp):
        staged = parse_staged_name(file) if file.startswith(prefix) else None
        if staged is not None:
            yield staged


def quarantined_files(layout: Layout, shard: int | None = None) -> Iterator[tuple[QuarantinedName, int]]:
    """Yields the files in quarantine and what they count for, in no order; with ``shard``, those from that one."""
    folder = layout.reach.opened_if_there(layout.quarantine)
    if folder is None:
        return
    of_file = space_of(layout).of_file
    with folder:
        for file in os.listdir(folder.number):
            name = parse_quarantined_name(file)
            if name is not None and shard in (None, name.shard):
                try:
                    status = folder.stat(file)
                except FileNotFoundError:
                    continue  # dropped since the listing
                if not stat.S_ISDIR(status.st_mode):
                    # A path that is not a file was not an entry, and counts zero.
                    yield name, of_file(status) if stat.S_ISREG(status.st_mode) else 0


def names_in(layout: Layout, path: str) -> list[str]:
    """Returns the names in a folder below the root: none where there is no folder, or a symlink."""
    folder = layout.reach.opened_if_there(path)
    if folder is None:
        return []
    with folder:
        return os.listdir(folder.number)


def _files(
    reach: Reach,
    parent: Folder | None,
    name: str,
    latest_ns: int = ANY_TIME_NS,
    between: Callable[[], object] = _nothing,
    restated_by: str | None = None,
) -> Iterator[tuple[str, os.stat_result, int]]:
    """Yields the regular files with entry names in one folder, last used by ``latest_ns``; none without that folder.

    Each with its status, and when it was used last. Those that are dated to come are among them; see :func:`restate`
    for ``restated_by``.
    """
    folder = parent and reach.opened_if_there(f"{parent.path}/{name}", parent)
    if folder is None:
        return
    now_ns, is_regular, has_name = time.time_ns(), stat.S_ISREG, is_entry_file
    with folder, os.scandir(folder.number) as found:
        for number, file in enumerate(found, 1):
            if not number % _ASK_EVERY:
                between()
            try:
                status = file.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # evicted or replaced since the listing
            # The cheapest question first: a sweep over a million entries asks it of each.
            used_ns, read_ns = status.st_mtime_ns, status.st_atime_ns
            if read_ns > used_ns:  # last_use_ns, written out
                used_ns = read_ns
            if latest_ns < used_ns <= now_ns:
                continue
            if is_regular(status.st_mode) and has_name(file.name):
                if used_ns > now_ns:
                    if restated_by is not None:
                        status = restate(restated_by, folder.number, file.name, status)
                    used_ns = last_use_ns(status)
                yield file.name, status, used_ns
