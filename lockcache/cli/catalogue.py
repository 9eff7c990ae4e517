# SPDX-License-Identifier: Apache-2.0
"""A directory of any layout that the daemon knows, for commands that show or remove entries.

Keeps the commands from knowing layouts: one protocol (:class:`Catalogue`), of lockcache's own directories (and
cuda.core's) by the store, of other programs' by :mod:`lockcache.layouts`. Opening one makes no file and takes no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from threading import Event
from typing import Final, Protocol

from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, guest_of, look
from lockcache.filestream.accounting import total_of
from lockcache.filestream.inspect import Census, select_among, select_counted
from lockcache.filestream.repair import OwnEntries, Verifiable
from lockcache.integrations.pyptx_directory import PyptxFiles, guest_layout
from lockcache.integrations.staged import staged_bytes
from lockcache.layouts import (
    GUESTS,
    SETTLE_SECONDS,
    WITH_ALL_IN_THEM,
    Files,
    PyptxEntries,
    WrongLayoutError,
    evict_each,
    measure,
    recognise,
    refuse_unless_cache,
    with_room,
)
from lockcache.lowlevel import (
    SHARDS,
    CacheDirectory,
    Described,
    Evicted,
    Found,
    Goal,
    Layout,
    Selection,
    Slot,
    check_directory,
    describe_entry,
    evict_selected,
    load_keys,
    measured,
    recount_all,
)

# Seconds between two checks whether the evicted entries are off the disk.
_FINISHING_SECONDS: Final = 0.05

Advance = Callable[[], object]


def _nothing() -> None:
    """Do nothing: the default for progress."""


class Catalogue(Protocol):
    """One directory."""

    #: The layout of lockcache's own files in it.
    layout: Layout

    @property
    def program(self) -> str:
        """The program that owns the directory: ``lockcache``, ``cuda.core``, ``pyptx``, ``triton`` or ``files``."""

    def select(
        self, selection: Selection, now_ns: int, advance: Advance = ..., census: Census | None = ...
    ) -> Iterator[Found]:
        """Yields the selected entries that are whole, in no order. ``advance`` is called :data:`SHARDS` times."""

    def describe(self, found: Found) -> Described | None:
        """Returns the description of an entry; ``None`` if it is gone."""

    def held(self) -> Slot:
        """Returns the size of the directory: as accounted if its usage page is open, else measured."""

    def begin_removal(self) -> None:
        """Raise what would keep entries from being removed, and make the accounting exact."""

    def evict(
        self, victims: list[Found], to: int | None, advance: Callable[[int], object], interrupted: Event
    ) -> Evicted:
        """Remove those of ``victims`` that nobody used or wrote since, until it holds no more than ``to``.

        Raises :class:`OSError` for what cannot be removed, after the others went.
        """

    def verifiable(self, *, repair: bool, touch: bool) -> Verifiable:
        """Returns the entries to verify. Raises :class:`ValueError` for a layout that records no digests."""


class Own:
    """lockcache's layout, and cuda.core's."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._opened: CacheDirectory | None = None

    @property
    def program(self) -> str:
        try:
            return recognise(self.layout.root)[0]
        except WrongLayoutError:
            return "lockcache"  # no entries, and other users' files next to their folder

    def select(
        self, selection: Selection, now_ns: int, advance: Advance = _nothing, census: Census | None = None
    ) -> Iterator[Found]:
        return select_counted(self.layout, selection, now_ns, advance, census or Census(selection))

    def describe(self, found: Found) -> Described | None:
        return describe_entry(self.layout, found)

    def held(self) -> Slot:
        return total_of(measured(self.layout)) if self._opened is None else self._opened.held()

    def begin_removal(self) -> None:
        self._opened = with_room(self.layout.root, "lockcache", self._open_counted)

    def _open_counted(self) -> CacheDirectory:
        opened = CacheDirectory(self.layout.root, LOCK_TIMEOUT_SECONDS)
        opened.usage()
        recount_all(opened)
        return opened

    def evict(
        self, victims: list[Found], to: int | None, advance: Callable[[int], object], interrupted: Event
    ) -> Evicted:
        opened = self._opened or CacheDirectory(self.layout.root, LOCK_TIMEOUT_SECONDS)
        return evict_selected(opened, victims, None if to is None else Goal(to), advance, interrupted.is_set)

    def verifiable(self, *, repair: bool, touch: bool) -> OwnEntries:
        self._opened = CacheDirectory(self.layout.root, LOCK_TIMEOUT_SECONDS)
        if repair:
            self._opened.usage()  # if it may not be written, fail before an hour of reading
        return OwnEntries(self._opened, repair=repair, may_use=touch, keys=load_keys(None))


class Guest:
    """Another program's directory: walked, since it has no accounting."""

    def __init__(self, root: str, program: str) -> None:
        self.layout = guest_layout(root)
        self._program = program
        self._kind = GUESTS[program]
        check_directory(self.layout, False)

    @property
    def program(self) -> str:
        return self._program

    def select(
        self, selection: Selection, now_ns: int, advance: Advance = _nothing, census: Census | None = None
    ) -> Iterator[Found]:
        whole = (found for found in self._scan() if found.inode)
        yield from select_among(whole, selection, self.describe, now_ns, census or Census(selection))
        for _ in range(SHARDS):
            advance()

    def describe(self, found: Found) -> Described:
        return self._kind.describe(self.layout.root, found)

    def held(self) -> Slot:
        return measure(self._scan(), staged_bytes(self.layout)).slot

    def prepare(self) -> None:
        """Make what is missing of lockcache's own folders in it."""
        self.begin_removal()
        self._open_files().close()

    def begin_removal(self) -> None:
        if self.program in WITH_ALL_IN_THEM:
            refuse_unless_cache(self.layout.root, self.program)

    def evict(
        self, victims: list[Found], to: int | None, advance: Callable[[int], object], interrupted: Event
    ) -> Evicted:
        files = self._open_files()
        try:
            evicted, _, failure = evict_each(files, victims, interrupted.is_set, lambda: advance(1))
            while files.is_pending and not interrupted.wait(_FINISHING_SECONDS):
                files.finish()
        finally:
            files.close()
        if failure is not None:
            raise failure
        return evicted

    def _open_files(self) -> Files:
        return with_room(self.layout.root, self.program, self._open_prepared, settle_seconds=SETTLE_SECONDS)

    def _open_prepared(self) -> Files:
        files = self._kind.open_files(self.layout.root, SETTLE_SECONDS, lambda: None)
        try:
            files.prepare()
        except BaseException:
            files.close()
            raise
        return files

    def verifiable(self, *, repair: bool, touch: bool) -> PyptxEntries:
        if self.program != "pyptx":
            raise ValueError(
                f"{self.layout.root}: nothing here can be verified: layout {self.program} records no digest"
            )
        return PyptxEntries(PyptxFiles(self.layout.root), repair=repair)

    def _scan(self) -> Iterator[Found]:
        return self._kind.view_entries(self.layout.root, lambda: None)


def open_catalogue(directory: str | None) -> Own | Guest:
    """Returns an existing, safe directory of any layout. Raises what :func:`look` raises."""
    guest = guest_of(directory)
    return Own(look(directory)) if guest is None else Guest(*guest)


def select(
    catalogue: Catalogue, selection: Selection, advance: Advance = _nothing, also: Iterable[Described] = ()
) -> Iterator[Found]:
    """Yields the selected entries. Raises :class:`ValueError` at their end for a filter's value that no entry has.

    A value that an entry of ``also`` has, which stands elsewhere, counts too.
    """
    now_ns, census = time.time_ns(), Census(selection)
    yield from catalogue.select(selection, now_ns, advance, census)
    for described in also if census.unmatched else ():
        census.add(described)
    if census.unmatched and (selection.unused_seconds, selection.used_seconds) != (None, None):
        for _ in catalogue.select(replace(selection, unused_seconds=None, used_seconds=None), now_ns, census=census):
            pass  # it is counted: entries of another age may have that value
    census.refuse_unmatched()
