"""Promoting: what a directory has and a bundle lacks goes into the next bundle, for the next job.

Keeps invariant 5 (death is free): the bundle is replaced by rename, so that a death at any step leaves the older one or
the newer one, whole, and at most a hidden file next to it. Promoters of all hosts take turns by a lock file next to the
bundle, and each reads the bundle when it has its turn: so nothing of another one is lost. Who has nothing to add finds
that out without a turn, from the bundle's table alone. Readers never wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from lockcache.archive.gathering import Choice, Gatherer
from lockcache.bundle.merging import Merge, Source
from lockcache.errors import ArchiveError
from lockcache.filestream import Place
from lockcache.filestream.bundle import BundleFile, RefusedEntryError
from lockcache.filestream.disk import WAIT_FOR_TURN_SECONDS, open_output, turn_to_replace
from lockcache.lowlevel import KeyRing, Layout, load_keys

__all__ = ["Promoted", "promote"]


@dataclass(frozen=True)
class Promoted:
    """What became of a bundle."""

    #: Entries that the bundle lacked, and has now.
    promoted: int
    #: That it has now.
    entries: int
    #: Entries that left, the oldest, for the size.
    too_old: int
    #: Left out, of the directory and of the bundle: damaged, or not signed with the keys.
    damaged: int


class _Directory:
    """Entries of a directory, in the place of a bundle."""

    def __init__(self, layout: Layout, keys: KeyRing | None, bundle: BundleFile | None) -> None:
        """Those that are not in ``bundle``, or damaged there."""
        self._gatherer = Gatherer(layout, Choice(), keys, lambda done, of: None, reads=2)
        self._keys = keys
        found = {bytes.fromhex(each.name): each for each in self._gatherer.found}
        self._found = {name: each for name, each in found.items() if bundle is None or _lacks(bundle, name)}
        self.size_bytes = sum(each.size_bytes for each in self._found.values())

    def places(self) -> list[Place]:
        return [Place(name, 0, each.size_bytes, 0) for name, each in sorted(self._found.items())]

    def find(self, name: bytes) -> tuple[bytes, int, int, int] | None:
        return Place(name, 0, self._found[name].size_bytes, 0)

    def load(self, name: bytes) -> tuple[bytes, bytes] | None:
        loaded = self._gatherer.load(self._found[name])
        return None if loaded is None else (loaded[0], self._gatherer.whole_record(name.hex(), *loaded, self._keys))


def promote(
    layout: Layout,
    path: str,
    max_size_bytes: int | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
    wait_seconds: float = WAIT_FOR_TURN_SECONDS,
) -> Promoted:
    """Put what the directory has, and the bundle at ``path`` lacks, into that bundle, which is made if it is missing.

    With ``max_size_bytes`` the oldest entries leave until the file is not larger. ``progress`` is given bytes read and
    bytes to read, at most. Waits for other promoters up to ``wait_seconds``.

    Raises :class:`OSError` (:class:`LockTimeoutError`), and :class:`ArchiveError` where something else, or a damaged
    bundle, stands at ``path``: that is left as it is.
    """
    keys = load_keys(None)
    target = os.path.realpath(path)
    bundle = _open(target, keys)
    if not _Directory(layout, keys, bundle).places() and _fits(bundle, max_size_bytes):
        return Promoted(0, 0 if bundle is None else bundle.entries, 0, 0)
    with turn_to_replace(target, wait_seconds) as turn:
        # Again: another promoter may have replaced it.
        bundle = _open(target, keys)
        directory = _Directory(layout, keys, bundle)
        sources: list[Source] = [directory] if bundle is None else [directory, bundle]
        merge = Merge(sources, progress, max_size_bytes)
        if merge.refused:
            raise ArchiveError(
                f"{target}: {merge.refused} of its entries cannot be verified with the signing keys that are here, "
                "and would be lost; nothing is promoted into it"
            )
        if not merge.count_from(0) and _fits(bundle, max_size_bytes):
            return Promoted(0, 0 if bundle is None else bundle.entries, 0, merge.damaged)
        with open_output(target, turn=turn) as out:
            merged = merge.write(out)
        return Promoted(merge.count_from(0), merged.entries, merged.too_old, merged.damaged)


def _open(path: str, keys: KeyRing | None) -> BundleFile | None:
    try:
        bundle = BundleFile(path, keys)
    except FileNotFoundError:
        return None
    if bundle.damage:
        raise ArchiveError(f"{path}: {bundle.damage}, and nothing is promoted into it")
    return bundle


def _lacks(bundle: BundleFile, name: bytes) -> bool:
    """Whether a bundle does not serve an entry. Most that it has are not in the directory, which was seeded with it."""
    try:
        return bundle.load(name) is None
    except RefusedEntryError:
        return False
    except ValueError:
        return True


def _fits(bundle: BundleFile | None, max_size_bytes: int | None) -> bool:
    return bundle is None or max_size_bytes is None or bundle.size_bytes <= max_size_bytes
