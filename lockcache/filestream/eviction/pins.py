# SPDX-License-Identifier: Apache-2.0
"""Pins: entries that no eviction chooses, whatever they are worth.

One file, ``lockcache/pins``, and one rule: the pins of the file protect, in their order, the entries that take no more
than half of the room that the cap leaves for entries. So the other half is there for what programs compile, whatever
somebody writes into the file, or lowers the cap to. The file is read by evictions, and by a put of more than half of
that room; no hit and no other put reads it. It is at most 32 KiB: a magic and names of entries, 32 bytes each; any
other bytes protect nothing.

A pin is of a key: an entry that is replaced stays pinned, and one that is deleted is again once it is stored again.
Deleting, ``lockcache rm`` and ``clear`` remove pinned entries like others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lockcache.filestream.accounting import Found, StatedPolicy, space_of
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import Layout, read_small, replacing, write_all

__all__ = [
    "MOST_PINS",
    "TooManyPinsError",
    "change_pins",
    "most_pinned_bytes",
    "pinned_bytes",
    "pinned_sizes",
    "protected",
    "stated_limit_bytes",
    "unpinned",
]

_MAGIC: Final = b"lockcache pins 1"
_NAME_BYTES: Final = 32
#: The most pins of a directory.
MOST_PINS: Final = 1023
_LARGEST_FILE_BYTES: Final = len(_MAGIC) + MOST_PINS * _NAME_BYTES


class TooManyPinsError(ValueError):
    """More would be pinned than may be."""


class Pinned(NamedTuple):
    """A pin."""

    name: str
    #: The bytes that the entry takes on the disk; 0 where there is none.
    size_bytes: int


def most_pinned_bytes(limit_bytes: int) -> int:
    """Returns what pinned entries may take of what a cap leaves for entries (:meth:`.Policy.entries_limit_bytes`)."""
    return limit_bytes // 2


def stated_limit_bytes(layout: Layout) -> int | None:
    """Returns what the stated cap leaves for entries, for callers that have no directory open. Raises OSError."""
    return StatedPolicy(layout).load().entries_limit_bytes(space_of(layout))


def read_pins(layout: Layout) -> list[str]:
    """Returns the names of the pinned entries, in the order in which they were pinned. Raises nothing."""
    try:
        blob = read_small(layout, layout.pins, _LARGEST_FILE_BYTES)
    except OSError:
        return []
    if not blob.startswith(_MAGIC):
        return []
    starts = range(len(_MAGIC), len(blob) - _NAME_BYTES + 1, _NAME_BYTES)
    return list(dict.fromkeys(blob[start : start + _NAME_BYTES].hex() for start in starts))


def pinned_sizes(layout: Layout) -> list[Pinned]:
    """Returns the pins, and what their entries take on the disk. Raises :class:`OSError`."""
    names = read_pins(layout)
    return [Pinned(name, _size_bytes(layout, name)) for name in names]


def protected(layout: Layout, limit_bytes: int | None) -> frozenset[str]:
    """Returns the names of the entries that no eviction chooses. ``limit_bytes``: of all entries; all stay without.

    Not of the cap: a seed takes up to half of that, and what other programs have in ``tmp/`` three quarters.

    One call where nothing is pinned, and one more for each pin.
    """
    names = read_pins(layout)
    if not names or limit_bytes is None:
        return frozenset(names)
    chosen, left = [], most_pinned_bytes(limit_bytes)
    for name in names:
        left -= _size_bytes(layout, name)
        if left < 0:
            break
        chosen.append(name)
    return frozenset(chosen)


def pinned_bytes(layout: Layout, limit_bytes: int | None) -> int:
    """Returns what no eviction makes room in."""
    return sum(_size_bytes(layout, name) for name in protected(layout, limit_bytes))


def unpinned(layout: Layout, found: Iterable[Found], limit_bytes: int | None) -> Iterator[Found]:
    """Yields the entries that an eviction may choose."""
    kept = protected(layout, limit_bytes)
    return (entry for entry in found if entry.name not in kept) if kept else iter(found)


def change_pins(directory: CacheDirectory, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
    """Pin and unpin entries. Returns the names whose pins changed. Raises :class:`OSError`.

    Raises :class:`TooManyPinsError` where they are more than may be, or take more than half of the cap; then nothing
    is changed.
    """
    layout = directory.layout
    with directory.locked():
        before = read_pins(layout)
        after = dict.fromkeys([*before, *add])
        for name in remove:
            after.pop(name, None)
        names = list(after)
        if len(names) > len(before):
            _refuse_too_many(directory, names)
        if names != before:
            with replacing(layout, layout.pins) as fd:
                write_all(fd, _MAGIC + b"".join(map(bytes.fromhex, names)))
    return [*(name for name in names if name not in before), *(name for name in before if name not in after)]


def _refuse_too_many(directory: CacheDirectory, names: list[str]) -> None:
    limit = directory.limit_bytes()
    if len(names) > MOST_PINS:
        raise TooManyPinsError(f"{len(names)} pins are more than the {MOST_PINS} that a directory may have")
    taken = sum(_size_bytes(directory.layout, name) for name in names)
    if limit is not None and taken > most_pinned_bytes(limit):
        raise TooManyPinsError(
            f"pinned entries would take {taken:,} bytes, and may take half of the cap, {most_pinned_bytes(limit):,}: "
            "unpin some, or raise the cap (lockcache policy set --max-size)"
        )


def _size_bytes(layout: Layout, name: str) -> int:
    try:
        size = space_of(layout).of_file(os.lstat(layout.entry(name)))
    except OSError:
        return 0
    try:
        return size + space_of(layout).of_file(os.lstat(layout.record(name)))
    except OSError:
        return size
