"""Making a bundle: the verified entries of a directory that a choice admits, in one file.

The same entries give the same bytes, whenever and by whomever they were used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import BinaryIO

from lockcache.archive.gathering import Choice, Gatherer, LeftOut, whole_record
from lockcache.filestream.bundle import BundleWriter
from lockcache.lowlevel import Layout, load_keys

__all__ = ["Made", "make_bundle"]


@dataclass(frozen=True)
class Made:
    """What became of a directory's entries."""

    entries: int
    #: Of payloads.
    bytes: int
    #: Left out: failed their digest.
    damaged: int
    #: Left out: are there, and cannot be read (EIO, EACCES).
    unreadable: int
    #: Left out: signed, and there is no such key here; or not signed, and there is a key here.
    refused: int
    #: Left out: have no record, as those of cuda.core's own cache: nothing could verify them in a bundle.
    unverified: int
    #: The damaged and the unreadable ones.
    left_out: tuple[LeftOut, ...]

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for and may be served is in the bundle."""
        return not self.left_out


def make_bundle(
    layout: Layout,
    out: BinaryIO,
    choice: Choice | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Made:
    """Write the entries of ``layout`` to ``out``, each read once. ``progress`` is given bytes read and bytes to read.

    Where there are signing keys here the entries are signed in the bundle, too. Raises :class:`OSError`.
    """
    keys = load_keys(None)
    gatherer = Gatherer(layout, choice or Choice(), keys, progress, reads=1)
    writer = BundleWriter(out)
    for found in sorted(gatherer.found, key=attrgetter("name")):
        loaded = gatherer.load(found)
        if loaded is not None:
            payload, blob = loaded
            writer.add(bytes.fromhex(found.name), payload, whole_record(found.name, payload, blob, keys))
            del loaded, payload  # else two are in memory while the next one is read
    writer.finish()
    return Made(
        writer.entries,
        writer.payload_bytes,
        gatherer.damaged,
        unreadable=len(gatherer.left_out) - gatherer.damaged,
        refused=gatherer.refused,
        unverified=gatherer.unverified,
        left_out=tuple(gatherer.left_out),
    )
