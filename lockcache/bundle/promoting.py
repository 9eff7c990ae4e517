# SPDX-License-Identifier: Apache-2.0
"""Promoting: what a directory has and a bundle lacks goes into the next bundle, for the next job.

Keeps invariant 5 (death is free): the bundle is replaced by rename, so that a death at any step leaves the older one or
the newer one, whole, and at most a hidden file next to it. Promoters of all hosts take turns by a lock file next to the
bundle, and each reads the bundle in its turn, so that nothing that another one added is lost. A promoter that has
nothing verified to add finds that out without a turn, from the bundle's table alone. Readers never wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from lockcache.bundle.gathering import Choice, Gatherer
from lockcache.bundle.merging import Merge, Source
from lockcache.errors import ArchiveError
from lockcache.filestream import WAIT_FOR_TURN_SECONDS, Place, open_output, turn_to_replace
from lockcache.filestream.bundle import BundleFile, RefusedEntryError
from lockcache.lowlevel import Found, KeyRing, Layout, load_keys

__all__ = ["Promoted", "promote"]


@dataclass(frozen=True)
class Promoted:
    """The outcome of promoting into a bundle."""

    #: Entries that the bundle lacked, and has now.
    promoted: int
    #: That it has now.
    entries: int
    #: Entries that left, the oldest, for the size.
    too_old: int
    #: Left out, of the directory and of the bundle: damaged, or not signed with the keys.
    damaged: int
    #: Left out, of the directory: have no record, so that nothing could verify them.
    unverified: int


class _Directory:
    """Entries of a directory, in the place of a bundle."""

    def __init__(self, layout: Layout, keys: KeyRing | None) -> None:
        self._gatherer = Gatherer(layout, Choice(include_seeded=False), keys, lambda done, of: None)
        self._keys = keys
        self._all = {bytes.fromhex(each.name): each for each in self._gatherer.found}
        self._is_whole: dict[bytes, bool] = {}
        self._found: dict[bytes, Found] = {}
        self.size_bytes = 0

    @property
    def damaged(self) -> int:
        """Entries so far that were left out: damaged, unreadable, or not signed with the keys."""
        return len({each.entry for each in self._gatherer.left_out}) + self._gatherer.refused

    @property
    def unverified(self) -> int:
        """Entries so far that were left out for having no record."""
        return self._gatherer.unverified

    def compare(self, bundle: BundleFile | None) -> bool:
        """Select the entries that ``bundle`` lacks and that can be verified. Returns whether there are any."""
        lacking = {name: each for name, each in self._all.items() if bundle is None or _lacks(bundle, name)}
        self._found = {name: each for name, each in lacking.items() if self._can_be_verified(name)}
        self.size_bytes = sum(each.size_bytes for each in self._found.values())
        return bool(self._found)

    def places(self) -> list[Place]:
        return [Place(name, 0, each.size_bytes, 0) for name, each in sorted(self._found.items())]

    def find(self, name: bytes) -> tuple[bytes, int, int, int] | None:
        return Place(name, 0, self._found[name].size_bytes, 0)

    def load(self, name: bytes) -> tuple[bytes, bytes] | None:
        found = self._all[name]
        loaded = self._gatherer.load(found)
        return None if loaded is None else (loaded[0], self._gatherer.whole_record(found, *loaded, self._keys))

    def _can_be_verified(self, name: bytes) -> bool:
        """Returns whether an entry is whole. Reads it once, however many bundles it is compared with."""
        if name not in self._is_whole:
            self._is_whole[name] = self._gatherer.load(self._all[name]) is not None
        return self._is_whole[name]


def promote(
    layout: Layout,
    path: str,
    max_size_bytes: int | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
    wait_seconds: float = WAIT_FOR_TURN_SECONDS,
    *,
    may_shrink: bool = True,
) -> Promoted:
    """Put what the directory has, and the bundle at ``path`` lacks, into that bundle, which is made if it is missing.

    With ``max_size_bytes`` the oldest entries leave until the file is not larger; not where it was larger before, if
    not ``may_shrink``. Entries without a record are left out. ``progress`` is given bytes read and bytes to read, at
    most. Waits for other promoters up to ``wait_seconds``.

    Raises :class:`OSError` (:class:`LockTimeoutError`), and :class:`ArchiveError` where something else, a damaged
    bundle, or one that must not shrink, stands at ``path``: that is left as it is.
    """
    keys = load_keys(None)
    target = os.path.realpath(path)
    directory = _Directory(layout, keys)
    bundle = _open(target, keys)
    if not directory.compare(bundle) and _fits(bundle, max_size_bytes, may_shrink=may_shrink):
        return _unchanged(bundle, directory)
    with turn_to_replace(target, wait_seconds) as turn:
        # Again: another promoter may have replaced it.
        bundle = _open(target, keys)
        directory.compare(bundle)
        sources: list[Source] = [directory] if bundle is None else [directory, bundle]
        fits = _fits(bundle, max_size_bytes, may_shrink=may_shrink)
        merge = Merge(sources, progress, max_size_bytes)
        if merge.refused:
            raise ArchiveError(
                f"{target}: {merge.refused} of its entries cannot be verified with the signing keys that are here, "
                "and would be lost; nothing is promoted into it"
            )
        if not merge.count_from(0) and fits:
            return _unchanged(bundle, directory, merge.damaged)
        with open_output(target, turn=turn) as out:
            merged = merge.write(out)
        damaged = merged.damaged + directory.damaged
        return Promoted(merge.count_from(0), merged.entries, merged.too_old, damaged, directory.unverified)


def _unchanged(bundle: BundleFile | None, directory: _Directory, damaged: int = 0) -> Promoted:
    entries = 0 if bundle is None else bundle.entries
    return Promoted(0, entries, 0, damaged + directory.damaged, directory.unverified)


def _open(path: str, keys: KeyRing | None) -> BundleFile | None:
    try:
        bundle = BundleFile(path, keys)
    except FileNotFoundError:
        return None
    if bundle.damage:
        raise ArchiveError(f"{path}: {bundle.damage}, and nothing is promoted into it")
    return bundle


def _lacks(bundle: BundleFile, name: bytes) -> bool:
    """Returns whether a bundle lacks an entry, or has only a damaged one."""
    try:
        return bundle.load(name) is None
    except RefusedEntryError:
        return False
    except ValueError:
        return True


def _fits(bundle: BundleFile | None, max_size_bytes: int | None, *, may_shrink: bool) -> bool:
    if bundle is None or max_size_bytes is None or bundle.size_bytes <= max_size_bytes:
        return True
    if not may_shrink:
        what = f"it takes {bundle.size_bytes} bytes, more than the {max_size_bytes} that it may have here"
        raise ArchiveError(f"{bundle.path}: {what}; for a smaller one run: lockcache bundle merge --max-size")
    return False
