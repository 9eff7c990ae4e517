"""Views of entries made of files: finding one, and making it with room for it, as a write makes room.

Decides when there is none: where there is no room for entry and view together, or nothing may be written; and where
others may write, but not sign, since a file that is checked now can be another when it is opened. Keeps invariant 7
(never take the job down): whatever a disk answers, the worst is that there is no view.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import ViewName, space_of
from lockcache.filestream.entry import StagedView, ViewPath, find_view, name_view, reserved_view_bytes
from lockcache.filestream.room import Room

__all__ = ["ViewPath", "Viewer"]

_log = logging.getLogger("lockcache")


class Viewer:
    """Finds and makes the views of one directory's entries."""

    def __init__(
        self, directory: CacheDirectory, timeout_seconds: float, counts: dict[str, int], *, is_signed: bool
    ) -> None:
        """``counts["evictions"]`` grows by what is evicted for views."""
        self._directory = directory
        self._timeout_seconds = timeout_seconds
        self._has_views = not (directory.is_nowhere or (is_signed and directory.is_shared))
        self._counts = counts

    def view(self, name: str, files: Mapping[str, bytes], blob: bytes) -> ViewPath | None:
        """The view of an entry that was read just now, of these files and with the record ``blob``.

        ``None`` if there can be none, or the entry is another by now.
        """
        if not self._has_views:
            return None
        layout = self._directory.layout
        try:
            view = name_view(space_of(layout), name, files)
            found = find_view(layout, view, files)
            return found if found is not None or self._directory.is_read_only else self._make(view, files, blob)
        except OSError as error:
            _log.debug("%s: no view of an entry: %s", layout.root, error)
            return None

    def _make(self, view: ViewName, files: Mapping[str, bytes], blob: bytes) -> ViewPath | None:
        directory, deadline = self._directory, time.monotonic() + self._timeout_seconds
        space, limit_bytes = directory.space, directory.limit_bytes()
        size = reserved_view_bytes(space, view)
        # With its entry, which would else be evicted for it.
        if limit_bytes is not None and size + space.of_bytes(sum(map(len, files.values()))) > limit_bytes:
            return None
        room = Room(directory, deadline)
        try:
            while True:
                staged = StagedView(directory, view.entry, size, deadline)
                try:
                    staged.reserve()
                    if _has_room(staged, room, limit_bytes, size):
                        room.leave()
                        staged.fill(files)
                        return staged.place(view, files, blob)
                finally:
                    staged.abandon()  # does nothing for one in its place
                if time.monotonic() >= deadline:
                    return None
                room.wait()
        finally:
            room.leave()
            self._counts["evictions"] += room.evicted.entries


def _has_room(staged: StagedView, room: Room, limit_bytes: int | None, size_bytes: int) -> bool:
    if limit_bytes is None or staged.usage.total_bytes() <= limit_bytes:
        return True
    staged.give_way()
    return room.make(limit_bytes, size_bytes)
