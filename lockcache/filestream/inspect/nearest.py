# SPDX-License-Identifier: Apache-2.0
"""Nearest neighbours of a key: the entries whose keys were made of nearly the same parts.

For ``lockcache why`` and the messages of a sealed program. One pass over the entries' notes, which are not
decoded: a part that is the same is the same piece of text in both, so counting equal pieces ranks the entries, and only
the best are taken apart. The records of a seed, which hold what a note does, are read after them if the caller opened
it. Reads no payload, which would take a hundred times as long, and verifies no digest: what is
found here is shown and not served. Not promised: that more than :data:`MOST_LOOKED_AT` entries are read.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from lockcache.explain import FRAMEWORK, Difference, Part, differences
from lockcache.filestream.accounting import names_in
from lockcache.filestream.disk import SHARDS, Layout, is_entry_file
from lockcache.filestream.entry import NO_ATTRIBUTE, NOTE_XATTR, find_records
from lockcache.filestream.inspect.describe import Statement, decode_statement, find_entry, read_statement
from lockcache.filestream.inspect.parallel_reads import read_ahead

#: Some three seconds, where the attributes are in memory.
MOST_LOOKED_AT: Final = 250_000
# How the parts stand in a note: a list of lists.
_BEGIN, _BETWEEN, _END = b'"parts":[[', b"],[", b"]]"
# Entries that are decoded for each one wanted: equal numbers of equal pieces are not equal numbers of differences.
_CANDIDATES: Final = 8
#: The part for the source. The same source, with whatever else, is nearer than any other one.
_CODE: Final = "code"
_SAME_CODE: Final = 1_000
_FRAMEWORK: Final = b'"%b"' % FRAMEWORK.encode()

# Looked up once.
_getxattr, _XATTR = os.getxattr, NOTE_XATTR.encode()

# The name of an entry, and its parts as its note has them.
_Noted: TypeAlias = tuple[str, list[bytes]]


class Neighbour(NamedTuple):
    """One stored entry, and how its key differs."""

    name: str
    statement: Statement
    differences: list[Difference]
    #: Whether only the seed of the directory has it.
    is_seeded: bool = False


class Nearest(NamedTuple):
    """The nearest entries, the nearest first, and how many entries were read."""

    neighbours: list[Neighbour]
    #: Entries of the directory.
    looked_at: int
    #: Entries of its seed, with those that do not state parts, which cannot be compared.
    seeded: int = 0
    seeded_without_parts: int = 0


class Seed(Protocol):
    """The entries that a directory's seed serves, as far as this reads them."""

    def names(self) -> Iterable[str]:
        """Returns the names of the entries that only the seed has."""

    def record(self, name: str) -> tuple[bytes, int] | None:
        """Returns an entry's record, unverified, and the length of its payload; ``None`` where it cannot be read."""


class Search:
    """A search for the entries whose keys differ in the fewest parts from one key's, entry by entry."""

    def __init__(self, name: str, parts: Sequence[Part], most: int = 1) -> None:
        """``name``: the key's own entry, which is passed over. ``most`` are wanted."""
        self._name, self._parts, self._most = name, parts, most
        self._pieces = frozenset(json.dumps(part, separators=(",", ":"))[1:-1].encode() for part in parts)
        self._code = next((piece for piece in self._pieces if piece.startswith(b'"%b"' % _CODE.encode())), b"")
        self._framework = next(filter(_names_framework, self._pieces), b"")
        self._best: list[tuple[int, str]] = []

    def consider(self, name: str, pieces: list[bytes]) -> None:
        """Consider an entry with these parts in its note."""
        score = sum(map(self._pieces.__contains__, pieces))  # how many are the same, to the letter
        if score and self._code in pieces:
            score += _SAME_CODE
        if not score or name == self._name:
            return
        if self._framework != (pieces[0] if _names_framework(pieces[0]) else b""):
            return  # the same variable or target in a key of another program
        # A heap of so many: most entries of a large directory are not among them, and cost one comparison.
        if len(self._best) < self._most * _CANDIDATES:
            heapq.heappush(self._best, (score, name))
        elif score > self._best[0][0]:
            heapq.heapreplace(self._best, (score, name))

    def found(
        self, layout: Layout, stored_ns: int, *, or_later: bool = False, seed: Seed | None = None
    ) -> list[Neighbour]:
        """Returns the nearest of those that were considered and are there, at most so many, the nearest first.

        Only those that were stored before ``stored_ns``, since a later one explains no miss; with ``or_later`` the
        later ones where there are none before. The same code comes before any other, then what has more parts in
        common, also those that follow from others; of equally near ones the latest.
        """

        scores = {name: score for score, name in self._best}

        def rank(neighbour: Neighbour) -> tuple[bool, int, int, int]:
            is_another = any(each.name == _CODE for each in neighbour.differences)
            age = -(neighbour.statement.created_ns or 0)
            return is_another, -scores[neighbour.name], len(neighbour.differences), age

        found = [neighbour for _, each in self._best if (neighbour := _compare(layout, each, self._parts, seed))]
        before = [each for each in found if (each.statement.created_ns or 0) < stored_ns]
        return sorted(before or (found if or_later else []), key=rank)[: self._most]


def consider_all(
    layout: Layout, searches: Sequence[Search], after_shard: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Let each search consider the entries of a directory, at most :data:`MOST_LOOKED_AT`; one with each step."""
    yield from _consider(searches, map(partial(_read_shard, layout), range(SHARDS)), after_shard)


def consider_seed(searches: Sequence[Search], seed: Seed, most: int = MOST_LOOKED_AT) -> Iterator[bool]:
    """Let each search consider the entries of a seed, at most so many; one with each step.

    Yields whether the entry states the parts of its key, without which it is like none.
    """
    for name in islice(seed.names(), most):
        found = seed.record(name)
        pieces = [] if found is None else _split(found[0])
        for search in searches:
            search.consider(name, pieces)
        yield bool(pieces)


def _consider(
    searches: Sequence[Search], shards: Iterable[Iterable[_Noted]], after_shard: Callable[[], None]
) -> Iterator[None]:
    looked_at = 0
    for entries in shards:
        for name, pieces in entries:
            if looked_at == MOST_LOOKED_AT:
                return
            looked_at += 1
            for search in searches:
                search.consider(name, pieces)
            yield
        after_shard()


def _read_shard(layout: Layout, shard: int) -> Iterator[_Noted]:
    for file in names_in(layout, layout.entry_shard(shard)):
        if is_entry_file(file):
            name = f"{shard:02x}{file}"
            yield name, _pieces(layout, name)


class Subject(NamedTuple):
    """A key that is compared with the stored ones: its own entry, its parts, and when it was stored."""

    name: str
    parts: Sequence[Part]
    stored_ns: int = 0


def find_nearest(
    layout: Layout,
    subjects: Sequence[Subject],
    most: int,
    after_shard: Callable[[], None] = lambda: None,
    seed: Seed | None = None,
) -> list[Nearest]:
    """Returns for each subject the entries whose keys differ in the fewest parts; see :meth:`Search.found`.

    All in one pass, so that five misses take hardly longer than one.
    """
    searches = [Search(each.name, each.parts, most) for each in subjects]
    with closing(read_ahead(lambda shard: list(_read_shard(layout, shard)), range(SHARDS))) as shards:
        looked_at = sum(1 for _ in _consider(searches, shards, after_shard))
    states_parts = [] if seed is None else list(consider_seed(searches, seed, MOST_LOOKED_AT - looked_at))
    seeded = len(states_parts), states_parts.count(False)
    return [
        Nearest(search.found(layout, each.stored_ns, or_later=True, seed=seed), looked_at, *seeded)
        for search, each in zip(searches, subjects, strict=True)
    ]


def _pieces(layout: Layout, name: str) -> list[bytes]:
    """Returns the parts of an entry's key, as they stand in its note; none where it has none."""
    path = f"{layout.entries}/{name[:2]}/{name[2:]}"
    try:
        note = _getxattr(path, _XATTR, follow_symlinks=False)
    except OSError as error:
        # Without one the record may hold what a note does: where records are files, and of what was unpacked.
        note = _records(layout, path, name) if error.errno in NO_ATTRIBUTE else b""
    return _split(note)


def _names_framework(piece: bytes) -> bool:
    return piece.startswith(_FRAMEWORK)


def _split(note: bytes) -> list[bytes]:
    begin = note.find(_BEGIN)
    end = note.find(_END, begin)
    return note[begin + len(_BEGIN) : end].split(_BETWEEN) if 0 <= begin < end else []


def _records(layout: Layout, path: str, name: str) -> bytes:
    try:
        return b"".join(find_records(layout, path, name))
    except OSError:
        return b""  # gone, or the file of another user


def _compare(layout: Layout, name: str, parts: Sequence[Part], seed: Seed | None) -> Neighbour | None:
    found = find_entry(layout, name)
    statement = _seeded_statement(seed, name) if found is None else read_statement(layout, found)
    if statement is None or not statement.parts:
        return None
    return Neighbour(name, statement, differences(parts, statement.parts), is_seeded=found is None)


def _seeded_statement(seed: Seed | None, name: str) -> Statement | None:
    found = None if seed is None else seed.record(name)
    return None if found is None else decode_statement(*found)
