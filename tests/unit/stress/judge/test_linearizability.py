# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from lockcache_stress.judge.histories import judge_histories, reduce_history
from lockcache_stress.judge.linearizability import Ruling, check
from lockcache_stress.judge.operations import OPEN, Kind, Operation, Value

A, B, C = Value(1, 1), Value(2, 1), Value(3, 1)


def op(kind: Kind, begin: int, end: int = OPEN, value: Value | None = None, process: str = "w1") -> Operation:
    return Operation(kind, 0, begin, end, value, process)


def put(value: Value, begin: int, end: int = OPEN) -> Operation:
    return op(Kind.PUT, begin, end, value)


def hit(value: Value, begin: int, end: int) -> Operation:
    return op(Kind.HIT, begin, end, value)


def miss(begin: int, end: int) -> Operation:
    return op(Kind.MISS, begin, end)


LEGAL = {
    "nothing happened": [],
    "a miss before the first put": [miss(0, 1), put(A, 2, 3), hit(A, 4, 5)],
    "a read during a put may give either": [put(A, 0, 1), put(B, 2, 9), hit(A, 3, 4), hit(B, 5, 6)],
    "overlapping puts in the other order": [put(A, 0, 5), put(B, 1, 4), hit(A, 6, 7)],
    "a miss after a removal": [put(A, 0, 1), op(Kind.REMOVED, 2, 3), miss(4, 5)],
    "a miss while it is being removed, and a hit before": [
        put(A, 0, 1),
        op(Kind.REMOVED, 2, 9),
        hit(A, 3, 4),
        miss(5, 6),
    ],
    "a killed put that took effect late": [put(A, 0), miss(5, 6), hit(A, 7, 8)],
    "a killed put that never did": [put(A, 0, 1), put(B, 2), hit(A, 3, 4), hit(A, 9, 10)],
    "a killed removal that took effect": [put(A, 0, 1), op(Kind.REMOVED, 2), hit(A, 3, 4), miss(5, 6)],
    "a dropped put leaves nothing": [put(A, 0, 1), op(Kind.DROPPED, 2, 3, B), miss(4, 5)],
    "a hit of some value": [put(A, 0, 1), op(Kind.HIT_UNKNOWN, 2, 3)],
    "what touches may have overlapped": [put(A, 0, 2), miss(2, 3)],
}
ILLEGAL = {
    "a value that nobody wrote": [hit(A, 0, 1)],
    "a miss that nothing explains": [put(A, 0, 1), miss(2, 3)],
    "an older value after a newer": [put(A, 0, 1), put(B, 2, 3), hit(A, 4, 5)],
    "reads that go back": [put(A, 0, 9), put(B, 0, 9), hit(A, 1, 2), hit(B, 3, 4), hit(A, 5, 6)],
    "a value after its removal": [put(A, 0, 1), op(Kind.REMOVED, 2, 3), hit(A, 4, 5)],
    "an older value after a dropped put": [put(A, 0, 1), op(Kind.DROPPED, 2, 3, B), hit(A, 4, 5)],
    "a delete that found nothing where there was something": [put(A, 0, 1), op(Kind.ABSENT, 2, 3)],
    "a hit of some value where there is none": [op(Kind.HIT_UNKNOWN, 0, 1)],
    "one removal explains no two misses around a put": [
        put(A, 0, 1),
        op(Kind.REMOVED, 2, 3),
        miss(4, 5),
        put(B, 6, 7),
        miss(8, 9),
    ],
}


@pytest.mark.parametrize("operations", LEGAL.values(), ids=LEGAL)
def test_what_one_register_could_have_done_is_ok(operations):
    assert check(operations).ruling is Ruling.OK


@pytest.mark.parametrize("operations", ILLEGAL.values(), ids=ILLEGAL)
def test_what_no_register_could_have_done_is_illegal(operations):
    assert check(operations).ruling is Ruling.ILLEGAL


def test_what_is_too_tangled_is_unknown_and_not_ok():
    removals = [op(Kind.REMOVED, number, 100) for number in range(10)]
    tangled = [put(A, 0, 100), *removals, put(B, 10, 50), hit(B, 11, 51), miss(60, 61), hit(A, 62, 63)]
    assert check(tangled, most=50).ruling is Ruling.UNKNOWN
    judged = judge_histories({0: tangled * 1})
    assert (judged.ok, judged.illegal) == (1, []), "with the limit as it is, it can be decided"


times = st.integers(0, 12)
kinds = st.sampled_from([Kind.PUT, Kind.HIT, Kind.MISS, Kind.REMOVED, Kind.DROPPED, Kind.ABSENT, Kind.HIT_UNKNOWN])


@st.composite
def histories(draw):
    operations = []
    for number in range(draw(st.integers(1, 6))):
        kind, begin = draw(kinds), draw(times)
        value = Value(number + 1, 1) if kind is Kind.PUT else draw(st.sampled_from([Value(n, 1) for n in range(1, 7)]))
        may_be_open = kind in (Kind.PUT, Kind.REMOVED)
        end = OPEN if may_be_open and draw(st.booleans()) else begin + draw(st.integers(0, 6))
        operations.append(op(kind, begin, end, value if kind in (Kind.PUT, Kind.HIT) else None))
    return sorted(operations, key=lambda each: (each.begin_ns, each.end_ns))


def by_trying_all_orders(operations: list[Operation]) -> bool:
    """The definition itself: some order that keeps to the times, with or without each open operation."""
    sure = [each for each in operations if not each.is_open]
    unsure = [each for each in operations if each.is_open]
    for chosen in range(1 << len(unsure)):
        taken = sure + [each for number, each in enumerate(unsure) if chosen >> number & 1]
        if any(keeps_to_the_times(order) and works(order) for order in permutations(taken)):
            return True
    return False


def keeps_to_the_times(order: tuple[Operation, ...]) -> bool:
    return all(
        later.end_ns >= earlier.begin_ns for number, earlier in enumerate(order) for later in order[number + 1 :]
    )


def works(order: tuple[Operation, ...]) -> bool:
    held: Value | None = None
    for each in order:
        if each.kind is Kind.PUT:
            held = each.value
        elif each.kind in (Kind.REMOVED, Kind.DROPPED):
            held = None
        elif each.kind is Kind.HIT:
            if held != each.value:
                return False
        elif (held is None) is (each.kind is Kind.HIT_UNKNOWN):
            return False
    return True


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(histories())
def test_the_search_agrees_with_trying_all_orders(operations):
    assert (check(operations).ruling is Ruling.OK) == by_trying_all_orders(operations)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(histories())
def test_what_is_left_of_an_illegal_history_is_illegal_and_no_larger(operations):
    checked = check(operations)
    if checked.ruling is Ruling.ILLEGAL:
        reduced = reduce_history(operations, checked)
        assert len(reduced.operations) <= len(operations)
        assert check(reduced.operations, reduced.initially).ruling is Ruling.ILLEGAL
        assert reduced.impossible in reduced.operations


def test_a_long_history_is_reduced_to_what_shows_the_mistake():
    operations = []
    for number in range(500):
        operations += [put(Value(1, number + 1), 10 * number, 10 * number + 1)]
        operations += [hit(Value(1, number + 1), 10 * number + 2, 10 * number + 3)]
    stale = hit(Value(1, 249), 2502, 2503)
    operations[501] = stale
    judged = judge_histories({7: operations, 8: LEGAL["a miss before the first put"]})
    assert (judged.ok, judged.illegal, judged.unknown) == (1, [7], [])
    key, reduced = judged.smallest
    assert (key, reduced.impossible) == (7, stale)
    assert len(reduced.operations) <= 3
