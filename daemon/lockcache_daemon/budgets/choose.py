"""Budgets that several directories share: what has to go, and from which of them. Pure.

Decides that what goes is what nobody used for longest, in whichever directory it is, and that no directory is taken
below its floor. A budget within one directory is :class:`.settings.rules.Rules`' business.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lockcache.lowlevel import Found, Goal, Slot, choose_victims
from lockcache_daemon.settings import Free

_NOTHING = Slot(0, 0)


class Room(NamedTuple):
    """A file system. No inodes at all: it makes them as it needs them."""

    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int


class Member(NamedTuple):
    """A directory that shares a budget."""

    held: Slot
    floor_bytes: int
    #: Asked for only where it matters whose entries are older. An entry may be missing or new: the sweep looks again.
    entries: Iterable[Found]


def total_surplus(total_bytes: int, low_share: float, members: Sequence[tuple[int, int]]) -> int:
    """Bytes that have to go so that directories of (bytes, floor) keep within a total; 0 below the high watermark."""
    held = sum(bytes_ for bytes_, _ in members)
    kept = sum(min(bytes_, floor) for bytes_, floor in members)
    # Floors may lie above the low watermark, and what they keep cannot go.
    low = max(int(total_bytes * low_share), kept)
    high = (low + total_bytes) // 2
    return held - low if held > high else 0


def free_shortage(wanted: Free, room: Room, low_share: float) -> Slot:
    """Bytes and inodes that have to be freed; none while enough is free.

    As for other budgets there is a margin, as large above what is wanted as below a cap; it begins within half of it.
    """
    if wanted.share is None:
        return Slot(_lacking(wanted.bytes or 0, room.free_bytes, low_share), 0)
    return Slot(
        _lacking(int(room.total_bytes * wanted.share), room.free_bytes, low_share),
        _lacking(int(room.total_inodes * wanted.share), room.free_inodes, low_share),
    )


def _lacking(wanted: int, free: int, low_share: float) -> int:
    margin = round(wanted * (1 - low_share))
    return wanted + margin - free if free < wanted + margin // 2 else 0


def share_out(needed: Slot, members: Sequence[Member]) -> list[Goal | None]:
    """What each member has to get down to, so that ``needed`` goes of all together; ``None``: it keeps all.

    The floors hold in any case, so it may be less than is needed.
    """
    if len(members) == 1 and not members[0].floor_bytes:
        taken = [needed]
    else:
        taken = _oldest_of_all(needed, [_offer(needed, member) for member in members])
    return [_goal(needed, member.held, each) for member, each in zip(members, taken, strict=True)]


def _goal(needed: Slot, held: Slot, taken: Slot) -> Goal | None:
    if taken == _NOTHING:
        return None
    return Goal(
        max(0, held.bytes - taken.bytes) if needed.bytes else None,
        max(0, held.entries - taken.entries) if needed.entries else None,
    )


def _offer(needed: Slot, member: Member) -> list[Found]:
    """The oldest entries of a member, as many as could be needed and its floor allows."""
    oldest, _ = choose_victims(member.entries, needed.bytes, 0, needed.entries)
    left = member.held.bytes
    for count, entry in enumerate(oldest):
        left -= entry.size_bytes
        if left < member.floor_bytes:
            return oldest[:count]
    return oldest


def _oldest_of_all(needed: Slot, offers: Sequence[list[Found]]) -> list[Slot]:
    """How much of each offer belongs to the oldest that together are what is needed."""
    taken = [_NOTHING] * len(offers)
    rows = [[(entry.last_use_ns, which, entry.size_bytes) for entry in offer] for which, offer in enumerate(offers)]
    freed = _NOTHING
    for _, which, size_bytes in heapq.merge(*rows):
        if freed.bytes >= needed.bytes and freed.entries >= needed.entries:
            break
        freed = Slot(freed.bytes + size_bytes, freed.entries + 1)
        taken[which] = Slot(taken[which].bytes + size_bytes, taken[which].entries + 1)
    return taken
