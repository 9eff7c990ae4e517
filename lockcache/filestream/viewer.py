# SPDX-License-Identifier: Apache-2.0
"""Viewer: finds the views of one directory's entries, and makes them, with room for them as a write makes it.

Decides when there is no view: where there is no room for entry and view together, or nothing may be written; and where
others may write, but not sign, since a file that is checked now can be another when it is opened. Keeps invariant 3
(hard cap): a view is reserved like a write. Keeps invariant 7 (never take the job down): whatever a disk answers, the
worst is that there is no view.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from lockcache.calling import parted_files
from lockcache.filestream.accounting import space_of
from lockcache.filestream.admission import Admission
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import ViewName
from lockcache.filestream.entry import (
    KeyRing,
    Load,
    StagedView,
    ViewPath,
    as_entry,
    find_view,
    name_view,
)
from lockcache.filestream.writer import Writer

_log = logging.getLogger("lockcache")

# Of an entry that is replaced while its view is made.
_MOST_VIEWS: Final = 2


class Viewer:
    """Shows the files of entries in one directory."""

    __slots__ = ("_counts", "_directory", "_has_views", "_is_seeded", "_timeout_seconds", "_writer")

    def __init__(
        self,
        directory: CacheDirectory,
        writer: Writer,
        timeout_seconds: float,
        counts: dict[str, int],
        keys: KeyRing | None,
        *,
        is_seeded: bool,
    ) -> None:
        """``counts["evictions"]`` grows by what is evicted for views."""
        self._directory = directory
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._has_views = not (directory.is_shared and keys is not None)
        self._counts = counts
        self._is_seeded = is_seeded

    def view(self, name: str, load: Load) -> ViewPath | None:
        """Returns the view of the files that ``load`` reads under ``name``; ``None`` without files, or without room."""
        for _ in range(_MOST_VIEWS):
            loaded = load(name)
            entry = None if loaded is None else as_entry(self._directory.layout.root, *loaded)
            files = None if entry is None else parted_files(entry.code, entry.metadata)
            if loaded is None or files is None:
                return None
            path = self._view_of(name, files, loaded[1])
            if path is not None:
                return path
            if self._is_seeded:  # a view is of an entry of the directory
                written = self._writer.store_copy(name, loaded)
                self._counts["evictions"] += written.evicted.entries
        return None

    def _view_of(self, name: str, files: Mapping[str, bytes], blob: bytes) -> ViewPath | None:
        """Returns the view of an entry that was just read: its files, and its record ``blob``.

        ``None`` if there can be none, or the entry is another by now.
        """
        if not self._has_views:
            return None
        layout = self._directory.layout
        try:
            view = name_view(space_of(layout), name, files)
            found = find_view(layout, view, files)
            return self._make(view, files, blob) if found is None else found
        except OSError as error:
            _log.debug("%s: no view of an entry: %s", layout.root, error)
            return None

    def _make(self, view: ViewName, files: Mapping[str, bytes], blob: bytes) -> ViewPath | None:
        directory, deadline = self._directory, time.monotonic() + self._timeout_seconds
        layout = directory.layout
        space = directory.space
        # The view, and folders that grow.
        size = view.size_bytes + space.most_of_entry(0, 0, has_block=False)
        # With its entry, which would else be evicted for it.
        entry_bytes = space.most_of_entry(sum(map(len, files.values())), len(blob), has_block=True)
        beside_bytes = entry_bytes + space.of_shard_folders(layout.shard_folders(int(view.entry[:2], 16)))
        admission = Admission(directory, deadline)
        try:
            while True:
                limit_bytes = directory.limit_bytes()  # it may be lowered while this waits
                if limit_bytes is not None and size + beside_bytes > limit_bytes:
                    return None
                staged = StagedView(directory, view.entry, size, deadline)
                try:
                    staged.reserve()
                    if _has_room_for(staged, admission, limit_bytes, size):
                        admission.leave()
                        staged.fill(files)
                        return staged.place(view, files, blob)
                finally:
                    staged.abandon()  # does nothing for one in its place
                if time.monotonic() >= deadline:
                    return None
                admission.wait()
        finally:
            admission.leave()
            self._counts["evictions"] += admission.evicted.entries


def _has_room_for(staged: StagedView, admission: Admission, limit_bytes: int | None, size_bytes: int) -> bool:
    if limit_bytes is None or staged.reservation.page.total_bytes() <= limit_bytes:
        return True
    staged.reservation.give_way()
    return admission.make_room(limit_bytes, size_bytes, staged.reservation.page)
