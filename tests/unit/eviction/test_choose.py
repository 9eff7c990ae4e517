# SPDX-License-Identifier: Apache-2.0
"""The order by value: what saves most for its bytes stays, what nobody uses goes, and damage moves nothing."""

from __future__ import annotations

from hypothesis import given, strategies as st

from lockcache.filestream.accounting import Ages
from lockcache.filestream.accounting.scan import Found
from lockcache.filestream.eviction.value import rank
from lockcache.filestream.policy import PRIORITIES, PRIORITY_WORDS
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
        st.integers(0, 255),
    ),
    max_size=30,
    unique_by=lambda entry: entry[0].name,
)
_ages = st.lists(
    st.tuples(st.integers(NOW_NS - 10**15, NOW_NS), st.floats(0, 1e7)), max_size=64, unique_by=lambda point: point[0]
).map(lambda points: Ages(tuple(sorted(at for at, _ in points)), tuple(sorted(age for _, age in points))))


def found(name: str, *, idle_seconds: float = 100.0, size_bytes: int = 1000) -> Found:
    return Found(NOW_NS - int(idle_seconds * SECOND_NS), name, size_bytes, 1)


def order(
    entries: list[Found], costs: dict[str, int], hits: dict[str, int] | None = None, ages: Ages | None = None
) -> list[str]:
    prices, counts = [costs[entry.name] for entry in entries], [(hits or {}).get(entry.name, 0) for entry in entries]
    return [entry.name for entry in rank(entries, prices, counts, ages or Ages(), NOW_NS).entries]


def test_there_are_two_priorities_and_cost_is_one_of_them() -> None:
    assert PRIORITIES == ("lru", "value")
    assert PRIORITY_WORDS == {"lru": "lru", "value": "value", "cost": "value"}


def test_of_two_alike_the_cheaper_the_larger_the_less_used_and_the_longer_unused_goes_first() -> None:
    assert order([found("a"), found("b")], {"a": 2, "b": 1}) == ["b", "a"]
    assert order([found("a"), found("b", size_bytes=2000)], {"a": 1, "b": 1}) == ["b", "a"]
    assert order([found("a"), found("b")], {"a": 1, "b": 1}, {"a": 1}) == ["b", "a"]
    assert order([found("a"), found("b", idle_seconds=200)], {"a": 1, "b": 1}) == ["b", "a"]


def test_cost_bytes_and_uses_weigh_the_same() -> None:
    base = found("base")
    for more, is_worth_more in ((7, True), (6, False)):
        x = found("x", size_bytes=4000)
        assert order([base, x], {"base": 20, "x": 10 * (more + 1)}) == (
            ["base", "x"] if is_worth_more else ["x", "base"]
        )
        assert order([base, x], {"base": 20, "x": 10}, {"x": more}) == (
            ["base", "x"] if is_worth_more else ["x", "base"]
        )


def test_an_entry_without_a_cost_is_taken_to_cost_the_median_of_the_others() -> None:
    entries = [found("cheap"), found("middle"), found("expensive"), found("unknown", idle_seconds=101)]
    costs = {"cheap": 1, "middle": 50, "expensive": 9999, "unknown": 0}
    assert order(entries, costs) == ["cheap", "unknown", "middle", "expensive"]


def test_where_nothing_has_a_cost_all_cost_the_same() -> None:
    entries = [found("a"), found("b", size_bytes=3000), found("c", idle_seconds=200), found("d", size_bytes=3000)]
    assert order(entries, dict.fromkeys("abcd", 0), {"d": 5}) == ["b", "c", "a", "d"]


def test_what_was_expensive_and_is_used_no_more_goes_in_the_end() -> None:
    entries = [found("expensive", idle_seconds=1000), found("cheap", idle_seconds=10)]
    costs = {"expensive": 5_000_000, "cheap": 1000}
    for age, first in ((4_000, "cheap"), (6_000, "expensive")):
        ages = Ages((NOW_NS - 100 * SECOND_NS,), (age,))
        assert order(entries, costs, ages=ages)[0] == first


def test_a_large_new_entry_is_not_the_next_victim_but_in_its_turn() -> None:
    entries = [found(name, idle_seconds=2) for name in "abcd"] + [found("new", idle_seconds=0.5, size_bytes=10**6)]
    assert order(entries, dict.fromkeys([*"abcd", "new"], 10**6))[-1] == "new"
    entries[-1] = found("new", idle_seconds=1.5, size_bytes=10**6)
    assert order(entries, dict.fromkeys([*"abcd", "new"], 10**6))[0] == "new"


def test_a_flood_of_cheap_entries_does_not_drive_out_what_is_worth_more() -> None:
    flood = [found(f"{number:03}", idle_seconds=number / 1000) for number in range(800)]
    kept = [found(f"kept {number}", idle_seconds=100) for number in range(100)]
    costs = dict.fromkeys((entry.name for entry in flood), 10) | dict.fromkeys((entry.name for entry in kept), 1000)
    ordered = order([*flood, *kept], costs)
    assert all(name.isdigit() for name in ordered[:740])
    assert set(ordered[-56:]) == {f"{number:03}" for number in range(56)}  # a sixteenth of the bytes


@property_test
@given(_entries, _ages, st.randoms())
def test_the_order_is_that_of_the_formula_whatever_the_order_of_listing(entries, ages, random) -> None:
    costs, hits = {e.name: cost for e, cost, _ in entries}, {e.name: count for e, _, count in entries}
    older = [entry for entry, *_ in entries if entry.last_use_ns <= NOW_NS - SECOND_NS]
    known = sorted(costs[entry.name] for entry in older if costs[entry.name])
    typical = known[(len(known) - 1) // 2] if known else 10**8

    def value(entry: Found) -> float:
        age = max((age for at, age in zip(*ages, strict=True) if at <= entry.last_use_ns), default=0.0)
        return age + (1 + hits[entry.name]) * (costs[entry.name] or typical) / max(1, entry.size_bytes)

    expected = [entry.name for entry in sorted(older, key=lambda entry: (value(entry), entry))]
    assert order(older, costs, hits, ages) == expected
    every = [entry for entry, *_ in entries]
    shuffled = every.copy()
    random.shuffle(shuffled)
    assert sorted(order(every, costs, hits, ages)) == sorted(costs)
    assert order(shuffled, costs, hits, ages) == order(every, costs, hits, ages)
