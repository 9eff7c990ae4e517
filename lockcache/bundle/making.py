# SPDX-License-Identifier: Apache-2.0
"""Making a bundle: the verified entries of a directory that a choice admits, in one file.

The same entries give the same bytes, whenever and by whomever they were used; packed ones if their last uses are the
same too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import BinaryIO

from lockcache.bundle.gathering import Choice, Gathered, Gatherer
from lockcache.filestream.bundle import BundleWriter
from lockcache.lowlevel import Layout, load_keys

__all__ = ["make_bundle"]


def make_bundle(
    layout: Layout,
    out: BinaryIO,
    choice: Choice | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
    *,
    is_packed: bool = False,
) -> Gathered:
    """Write the entries of ``layout`` to ``out``, each read once, and those that its seed serves, read twice.

    ``progress`` is given bytes read and bytes to read. Where there are signing keys here the entries are signed in the
    bundle, too. ``is_packed``: to be unpacked elsewhere, so without signatures, since the directory there signs them;
    with the last uses, and the least recently used first, so that a small cap drops the oldest ones.

    Raises :class:`OSError`.
    """
    keys = load_keys(None)
    gatherer = Gatherer(layout, choice or Choice(), keys, progress)
    writer, seeded = BundleWriter(out), 0
    for found in gatherer.found if is_packed else sorted(gatherer.found, key=attrgetter("name")):
        loaded = gatherer.load(found)
        if loaded is not None:
            payload, blob = loaded
            record = gatherer.whole_record(found, payload, blob, None if is_packed else keys)
            writer.add(bytes.fromhex(found.name), payload, record, found.last_use_ns if is_packed else 0)
            seeded += gatherer.is_seeded(found)
            del loaded, payload  # else two are in memory while the next one is read
    writer.finish()
    return gatherer.gathered(writer.entries, writer.payload_bytes, seeded)
