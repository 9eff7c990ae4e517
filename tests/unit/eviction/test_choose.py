"""The order by cost: what is expensive to rebuild stays, what nobody uses goes, and damage moves nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.accounting.scan import Found
from lockcache.filestream.eviction.choose import least_worth_first
from lockcache.filestream.policy import PRIORITIES
from tests.unit.material import property_test

NOW_NS = 10**18
SECOND_NS = 10**9

_entries = st.lists(
    st.tuples(
        st.builds(
            Found,
            st.integers(NOW_NS - 10**6 * SECOND_NS, NOW_NS + SECOND_NS),
            st.text("0123456789abcdef", min_size=8, max_size=8),
            st.integers(0, 10**9),
            st.just(1),
        ),
        st.integers(0, 10**13),
    ),
    max_size=30,
    unique_by=lambda entry: entry[0].name,
)


def found(name: str, *, idle_seconds: float = 100.0, size_bytes: int = 1000) -> Found:
    return Found(NOW_NS - int(idle_seconds * SECOND_NS), name, size_bytes, 1)


def order(entries: list[Found], costs: dict[str, int]) -> list[str]:
    return [entry.name for entry in least_worth_first(entries, lambda entry: costs[entry.name], NOW_NS)]


def test_there_are_two_priorities() -> None:
    assert PRIORITIES == ("lru", "cost")


def test_of_two_alike_the_cheaper_the_larger_and_the_longer_unused_goes_first() -> None:
    assert order([found("a"), found("b")], {"a": 2, "b": 1}) == ["b", "a"]
    assert order([found("a"), found("b", size_bytes=2000)], {"a": 1, "b": 1}) == ["b", "a"]
    assert order([found("a"), found("b", idle_seconds=200)], {"a": 1, "b": 1}) == ["b", "a"]


def test_cost_bytes_and_idle_time_weigh_the_same() -> None:
    base = found("base", idle_seconds=100, size_bytes=1000)
    assert order([base, found("x", idle_seconds=399, size_bytes=2000)], {"base": 10, "x": 80}) == ["base", "x"]
    assert order([base, found("x", idle_seconds=401, size_bytes=2000)], {"base": 10, "x": 80}) == ["x", "base"]


def test_an_entry_without_a_cost_is_taken_to_cost_the_median_of_the_others() -> None:
    entries = [found("cheap"), found("middle"), found("dear"), found("unknown", idle_seconds=100.001)]
    costs = {"cheap": 1, "middle": 50, "dear": 9999, "unknown": 0}
    assert order(entries, costs) == ["cheap", "unknown", "middle", "dear"]


def test_where_nothing_has_a_cost_it_is_bytes_and_time() -> None:
    entries = [found("a"), found("b", size_bytes=3000), found("c", idle_seconds=200)]
    assert order(entries, dict.fromkeys("abc", 0)) == ["b", "c", "a"]


def test_what_was_dear_and_is_used_no_more_goes_in_the_end() -> None:
    assert order(
        [found("dear", idle_seconds=99_000), found("cheap", idle_seconds=100)], {"dear": 1000, "cheap": 1}
    ) == [
        "cheap",
        "dear",
    ]
    assert order(
        [found("dear", idle_seconds=101_000), found("cheap", idle_seconds=100)], {"dear": 1000, "cheap": 1}
    ) == ["dear", "cheap"]


@property_test
@given(_entries)
def test_it_orders_all_of_them_whatever_they_look_like_and_the_same_each_time(
    entries: list[tuple[Found, int]],
) -> None:
    costs = {entry.name: cost for entry, cost in entries}
    given_order = [entry for entry, _ in entries]
    ordered = least_worth_first(given_order, lambda entry: costs[entry.name], NOW_NS)
    assert sorted(ordered) == sorted(given_order)
    assert ordered == least_worth_first(given_order[::-1], lambda entry: costs[entry.name], NOW_NS)


@pytest.mark.slow
@property_test
@given(_entries.filter(lambda entries: len(entries) > 1), st.data())
def test_to_cost_more_never_makes_an_entry_go_earlier(entries: list[tuple[Found, int]], data: st.DataObject) -> None:
    costs = {entry.name: cost + 1 for entry, cost in entries}
    one = data.draw(st.sampled_from([entry for entry, _ in entries]))
    before = order([entry for entry, _ in entries], costs).index(one.name)
    costs[one.name] *= data.draw(st.integers(1, 1000))
    assert order([entry for entry, _ in entries], costs).index(one.name) >= before


@pytest.mark.parametrize("ahead_seconds", [0, 1, 10**6])
def test_a_clock_that_is_ahead_makes_an_entry_stay_and_breaks_nothing(ahead_seconds: float) -> None:
    ahead = found("ahead", idle_seconds=-ahead_seconds)
    assert order([ahead, found("old")], {"ahead": 1, "old": 1000}) == ["old", "ahead"]
