# SPDX-License-Identifier: Apache-2.0
"""Budgets that directories share, as numbers: what has to go, and from whom."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.accounting.scan import Found
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.disk.space import Space
from lockcache.filestream.eviction.choose import Goal
from lockcache.filestream.policy import Policy
from lockcache_daemon.budgets.choose import Member, Room, free_shortage, share_out, total_surplus
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.settings.values import Free

ROOM = Room(total_bytes=1000, free_bytes=100, total_inodes=200, free_inodes=20)


def member(*uses: int, size: int = 10, floor: int = 0) -> Member:
    entries = [Found(use, f"{use:04}", size, 1) for use in uses]
    return Member(Slot(size * len(entries), len(entries)), floor, entries)


# ---- one directory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "held, excess",
    [
        (Slot(950, 95), None),
        (Slot(951, 0), ("max-size", Goal(900, None))),
        (Slot(0, 96), ("max-entries", Goal(None, 90))),
        (Slot(951, 96), ("max-size, max-entries", Goal(900, 90))),
    ],
)
def test_whichever_budget_bites_is_named_and_only_that_is_got_down_to(
    held: Slot, excess: tuple[str, Goal] | None
) -> None:
    rules = Rules(1000, max_entries=100)
    assert rules.excess(rules.policy, Space(4096), held) == excess


def test_a_cap_that_an_operator_set_meanwhile_counts() -> None:
    assert Rules().excess(Policy(100), Space(4096), Slot(99, 1)) == ("max-size", Goal(90, None))


@pytest.mark.parametrize("space", [Space(1), Space(4096), Space(4096, 512, shows_blocks=True), Space(1 << 16)])
@pytest.mark.parametrize("cap", [4 << 20, 8 << 20, 1 << 30])
def test_watermarks_are_shares_of_what_writers_leave_for_entries(cap: int, space: Space) -> None:
    limit = Policy(cap).entries_limit_bytes(space)
    assert limit is not None
    assert Rules().watermarks(Policy(cap), space) == (low := int(0.9 * limit), (low + limit) // 2)
    assert Rules().excess(Policy(cap), space, Slot(limit, 1)) == ("max-size", Goal(low, None))


# ---- free space ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted, shortage",
    [
        (Free(bytes=95), (0, 0)),  # sweeps begin within half of the margin
        (Free(bytes=96), (96 + 10 - 100, 0)),
        (Free(bytes=2000), (2100, 0)),
        (Free(share=0.09), (0, 0)),
        (Free(share=0.1), (10, 2)),
    ],
)
def test_a_shortage_is_what_lacks_up_to_the_margin(wanted: Free, shortage: tuple[int, int]) -> None:
    assert free_shortage(wanted, ROOM, 0.9) == shortage


def test_without_a_margin_a_shortage_is_what_lacks() -> None:
    assert free_shortage(Free(bytes=100), ROOM, 1.0) == (0, 0)
    assert free_shortage(Free(bytes=101), ROOM, 1.0) == (1, 0)


def test_a_file_system_that_makes_inodes_as_it_needs_them_never_lacks_any() -> None:
    assert free_shortage(Free(share=0.05), Room(1000, 900, 0, 0), 0.9) == (0, 0)


# ---- a total ---------------------------------------------------------------------------------------------------------


def test_a_total_is_swept_above_its_high_watermark_down_to_its_low_one() -> None:
    assert total_surplus(1000, 0.9, [(500, 0), (450, 0)]) == 0
    assert total_surplus(1000, 0.9, [(500, 0), (451, 0)]) == 51


def test_floors_above_the_low_watermark_are_not_asked_for() -> None:
    assert total_surplus(1000, 0.9, [(600, 500), (520, 480)]) == 120 + 20
    assert total_surplus(1000, 0.9, [(500, 500), (490, 480)]) == 0
    assert total_surplus(1000, 0.9, [(1001, 0), (10, 990)]) == 111  # a floor that is not filled keeps nothing


# ---- from whom -------------------------------------------------------------------------------------------------------


def test_what_nobody_used_for_longest_goes_in_whichever_directory_it_is() -> None:
    goals = share_out(Slot(40, 0), [member(1, 2, 9), member(3, 7, 8), member(4, 5)])
    assert goals == [Goal(10), Goal(20), Goal(10)]
    assert share_out(Slot(20, 0), [member(1, 2, 9), member(3, 7, 8)]) == [Goal(10), None]


def test_no_directory_is_taken_below_its_floor_and_the_others_make_up_for_it() -> None:
    assert share_out(Slot(30, 0), [member(1, 2, 3, floor=25), member(7, 8, 9)]) == [None, Goal(0)]
    assert share_out(Slot(30, 0), [member(1, 2, 3, floor=15), member(7, 8, 9)]) == [Goal(20), Goal(10)]
    assert share_out(Slot(90, 0), [member(1, 2, 3, floor=20), member(7, 8, 9, floor=20)]) == [Goal(20), Goal(20)]


def test_entries_are_shared_out_like_bytes() -> None:
    assert share_out(Slot(0, 3), [member(1, 9), member(2, 3, size=50)]) == [Goal(None, 1), Goal(None, 0)]
    assert share_out(Slot(0, 1), [member(1, 2, floor=20)]) == [None]


def test_one_directory_alone_is_not_walked() -> None:
    held = Slot(100, 10)
    assert share_out(Slot(30, 0), [Member(held, 0, iter(lambda: pytest.fail("walked"), None))]) == [Goal(70)]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))), st.integers(0, 200)), min_size=1),
    st.integers(1, 400),
)
def test_what_goes_is_enough_or_all_that_floors_allow_and_nothing_older_stays(
    crew: list[tuple[list[tuple[int, int]], int]], needed: int
) -> None:
    members = []
    for uses, floor in crew:
        entries = [Found(use, str(number), size, 1) for number, (use, size) in enumerate(uses)]
        members.append(Member(Slot(sum(size for _, size in uses), len(uses)), floor, entries))
    goals = share_out(Slot(needed, 0), members)
    gone = 0
    for each, goal in zip(members, goals, strict=True):
        limit = each.held.bytes if goal is None or goal.limit_bytes is None else goal.limit_bytes
        assert limit >= min(each.floor_bytes, each.held.bytes)
        gone += each.held.bytes - limit
    largest = max((size for uses, _ in crew for _, size in uses), default=0)
    evictable = sum(max(0, each.held.bytes - each.floor_bytes) for each in members)
    assert gone >= min(needed, evictable - largest * len(members))
