# SPDX-License-Identifier: Apache-2.0
"""Budgets that several directories share: how much has to go, and from which directory. Pure.

Decides that the least recently used entries go, in whichever directory they are, and that no directory is taken below
its floor. A budget within one directory is the business of :class:`.settings.rules.Rules`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lockcache.lowlevel import Found, Goal, Slot, choose_victims
from lockcache_daemon.settings import Free

_NOTHING = Slot(0, 0)


class Room(NamedTuple):
    """The room on a file system. ``total_inodes`` is 0 where the file system makes inodes as it needs them."""

    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int


class Member(NamedTuple):
    """A directory that shares a budget."""

    held: Slot
    floor_bytes: int
    #: Read only where the ages of entries decide. An entry may be missing or new: the sweep looks again.
    entries: Iterable[Found]


def total_surplus(total_bytes: int, low_share: float, members: Sequence[tuple[int, int]]) -> int:
    """Returns the bytes that have to go so that directories of (bytes, floor) keep within a total.

    Returns 0 below the high watermark.
    """
    held = sum(bytes_ for bytes_, _ in members)
    kept = sum(min(bytes_, floor) for bytes_, floor in members)
    # Floors may lie above the low watermark, and what they keep cannot go.
    low = max(int(total_bytes * low_share), kept)
    high = (low + total_bytes) // 2
    return held - low if held > high else 0


def free_shortage(wanted: Free, room: Room, low_share: float) -> Slot:
    """Returns the bytes and inodes that have to be freed; none while enough is free.

    As for other budgets there is a margin, as large above the wanted amount as below a cap. Sweeps begin when less than
    half of the margin is left.
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
    """Returns the goal of each member, so that ``needed`` goes of all together; ``None``: the member keeps all.

    The floors hold in any case, so less than ``needed`` may go.
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
    """Returns the oldest entries of a member, as many as could be needed and its floor allows."""
    oldest = choose_victims(member.entries, needed.bytes, needed.entries)
    left = member.held.bytes
    for count, entry in enumerate(oldest):
        left -= entry.size_bytes
        if left < member.floor_bytes:
            return oldest[:count]
    return oldest


def _oldest_of_all(needed: Slot, offers: Sequence[list[Found]]) -> list[Slot]:
    """Returns how much of each offer belongs to the oldest entries that together add up to ``needed``."""
    taken = [_NOTHING] * len(offers)
    rows = [[(entry.last_use_ns, which, entry.size_bytes) for entry in offer] for which, offer in enumerate(offers)]
    freed = _NOTHING
    for _, which, size_bytes in heapq.merge(*rows):
        if freed.bytes >= needed.bytes and freed.entries >= needed.entries:
            break
        freed = Slot(freed.bytes + size_bytes, freed.entries + 1)
        taken[which] = Slot(taken[which].bytes + size_bytes, taken[which].entries + 1)
    return taken
