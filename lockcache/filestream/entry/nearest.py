"""Nearest neighbours of a key: of all entries those whose keys were made of nearly the same parts.

For ``lockcache why``. One pass over the entries' notes, which are not decoded: a part that is the same is the same
piece of text in both, so counting equal pieces ranks the entries, and only the best are taken apart. Reads no payload,
which would take a hundred times as long, and verifies no digest: what is found here is shown and not served. Not
promised: that of more than :data:`MOST_LOOKED_AT` entries all are looked at.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from lockcache.explain import Difference, Part, differences
from lockcache.filestream.accounting import names_in
from lockcache.filestream.disk import SHARDS, Layout, is_entry_file
from lockcache.filestream.entry.codec import NOTE_XATTR
from lockcache.filestream.entry.describe import Statement, find_entry, read_statement
from lockcache.filestream.entry.locate import NO_ATTRIBUTE, read_record_file

__all__ = ["MOST_LOOKED_AT", "Nearest", "Neighbour", "find_nearest"]

#: Some three seconds.
MOST_LOOKED_AT: Final = 250_000
# How the parts stand in a note: a list of lists.
_BEGIN, _BETWEEN, _END = b'"parts":[[', b"],[", b"]]"
# Taken apart for each one that is wanted: equal numbers of equal pieces are not equal numbers of differences.
_CANDIDATES: Final = 8

# Looked up once.
_getxattr, _XATTR = os.getxattr, NOTE_XATTR.encode()


class Neighbour(NamedTuple):
    """One stored entry, and how its key differs."""

    name: str
    statement: Statement
    differences: list[Difference]


class Nearest(NamedTuple):
    """The nearest first, and at how many entries was looked."""

    neighbours: list[Neighbour]
    looked_at: int


def find_nearest(
    layout: Layout,
    name: str,
    parts: Sequence[Part],
    most: int,
    stored_ns: int = 0,
    after_shard: Callable[[], None] = lambda: None,
) -> Nearest:
    """Returns the entries other than ``name`` whose keys differ in the fewest parts, at most ``most``.

    Of equally near ones first those that were stored before ``stored_ns``, the latest first.
    """
    pieces = frozenset(json.dumps(part, separators=(",", ":"))[1:-1].encode() for part in parts)
    best: list[tuple[int, str]] = []
    looked_at = 0
    for each in _names(layout, after_shard):
        if looked_at == MOST_LOOKED_AT:
            break
        looked_at += 1
        score = _score(layout, each, pieces)
        if score and each != name:
            # A heap of so many: most entries of a large directory are not among them, and cost one comparison.
            if len(best) < most * _CANDIDATES:
                heapq.heappush(best, (score, each))
            elif score > best[0][0]:
                heapq.heapreplace(best, (score, each))
    found = [neighbour for _, each in best if (neighbour := _compare(layout, each, parts))]

    def rank(neighbour: Neighbour) -> tuple[int, bool, int]:
        created_ns = neighbour.statement.created_ns or 0
        return len(neighbour.differences), created_ns > stored_ns, -created_ns

    return Nearest(sorted(found, key=rank)[:most], looked_at)


def _names(layout: Layout, after_shard: Callable[[], None]) -> Iterator[str]:
    for shard in range(SHARDS):
        yield from (f"{shard:02x}{file}" for file in names_in(layout, layout.entry_shard(shard)) if is_entry_file(file))
        after_shard()


def _score(layout: Layout, name: str, pieces: frozenset[bytes]) -> int:
    """How many parts are the same, to the letter."""
    try:
        note = _getxattr(f"{layout.entries}/{name[:2]}/{name[2:]}", _XATTR, follow_symlinks=False)
    except OSError as error:
        # Without one the record may be a file, and hold it.
        note = _record_file(layout, name) if error.errno in NO_ATTRIBUTE else b""
    begin = note.find(_BEGIN)
    end = note.find(_END, begin)
    return sum(map(pieces.__contains__, note[begin + len(_BEGIN) : end].split(_BETWEEN))) if 0 <= begin < end else 0


def _record_file(layout: Layout, name: str) -> bytes:
    try:
        return read_record_file(layout, name) or b""
    except OSError:
        return b""  # the file of another user


def _compare(layout: Layout, name: str, parts: Sequence[Part]) -> Neighbour | None:
    found = find_entry(layout, name)
    statement = read_statement(layout, found) if found is not None else None
    if statement is None or not statement.parts:
        return None
    return Neighbour(name, statement, differences(parts, statement.parts))
