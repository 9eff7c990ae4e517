# SPDX-License-Identifier: Apache-2.0
"""Linearizability: could a single register have had a key's history? Decided, not sampled.

The register holds one value or nothing. Each operation must take effect at one instant between its begin and its end: a
put sets the register to its value, a removal empties the register, a hit needs exactly its value in the register and a
miss needs an empty one. A put that the cache gave up, and a removal by a process that was killed meanwhile, may have
taken effect or not; an open operation may have taken effect at any time after its begin.

The search follows Wing and Gong (1993) in the order of Lowe (2017): events come in the order of time, and a write is
placed only when an end is met that needs the write. The search carries the set of all possible states. Three rules keep
this set small without losing a possible order:

- A read changes nothing, so it is placed in the first state that allows it.
- A value that is still to be read must not be overwritten, unless another put can bring it back.
- A put whose value no operation reads is placed right in front of the next write, and so has no effect.

If the set grows beyond a limit all the same, the answer is ``UNKNOWN``, which is not ``OK``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from lockcache_stress.judge.operations import OPEN, Kind, Operation, Value

#: The most possible states at one time; a history of sixteen processes stays under a hundred.
_MOST_POSSIBLE: Final = 20_000

_WRITES: Final = (Kind.PUT, Kind.REMOVED, Kind.DROPPED)


class Ruling(Enum):
    """The ruling on a history."""

    OK = "ok"
    ILLEGAL = "illegal"
    UNKNOWN = "unknown"


class Possible(NamedTuple):
    """One state that the register may be in."""

    #: The value; ``None`` for an empty register.
    value: Value | None
    #: The indices of operations that took effect and have not returned yet.
    placed: frozenset[int]


@dataclass(frozen=True)
class Checked:
    """The outcome of :func:`check`."""

    ruling: Ruling
    #: The index of the operation that cannot have ended as it did; ``None`` if all can.
    at: int | None = None
    #: The last moment before that operation at which only operations were in progress that never ended: the index of
    #: the first operation after that moment. For the values that the register may have held then, see
    #: :func:`held_before`.
    quiet_from: int = 0
    quiet_values: frozenset[Value | None] = field(default=frozenset((None,)))


class _TooManyError(Exception):
    """Raised when the set of possible states exceeds its limit."""


def check(
    operations: Sequence[Operation], initially: Iterable[Value | None] = (None,), most: int = _MOST_POSSIBLE
) -> Checked:
    """Judge one key's operations in the order of their begins. ``initially``: the possible values of the register."""
    starts = frozenset(initially)
    found = _search(operations, starts, most)
    return found if found.at is None or found.ruling is Ruling.UNKNOWN else _first(operations, starts, most, found)


def is_illegal(operations: Sequence[Operation], initially: Iterable[Value | None]) -> bool:
    """Returns whether the operations are illegal, without the place of the mistake that :func:`check` finds."""
    return _search(operations, frozenset(initially), _MOST_POSSIBLE).ruling is Ruling.ILLEGAL


def held_before(
    first: Operation, before: Sequence[Operation], initially: Iterable[Value | None]
) -> frozenset[Value | None]:
    """Returns the possible values of the register when ``first`` begins, whatever is read from then on.

    Requires: those of the operations ``before`` it that are in progress then are open.
    """
    # A read of any value, without an end: it forbids no state, and keeps every value from counting as unread.
    anything = replace(first, kind=Kind.HIT_UNKNOWN, value=None, end_ns=OPEN)
    return _search([*before, anything], frozenset(initially), _MOST_POSSIBLE).quiet_values


def _search(operations: Sequence[Operation], starts: frozenset[Value | None], most: int) -> Checked:
    """Returns the ruling. It may find a history illegal before the operation that cannot have ended as it did."""
    possible = {Possible(value, frozenset()) for value in starts}
    pending: set[int] = set()
    ending = 0  # the number of pending operations that will end
    quiet, quiet_values = 0, starts
    reads = _Reads(operations)
    for _, is_end, index in _events(_without_unseen(operations, reads)):
        if not is_end:
            if not ending:
                quiet, quiet_values = index, frozenset(each.value for each in possible)
            pending.add(index)
            ending += not operations[index].is_open
            continue
        ending -= 1
        try:
            possible = _place(reads, possible, pending, index, most)
        except _TooManyError:
            return Checked(Ruling.UNKNOWN, index, quiet, quiet_values)
        pending.discard(index)
        if not possible:
            return Checked(Ruling.ILLEGAL, index, quiet, quiet_values)
    return Checked(Ruling.OK, None, quiet, quiet_values)


def _first(operations: Sequence[Operation], starts: frozenset[Value | None], most: int, found: Checked) -> Checked:
    """Returns the ruling with the first operation at which the history is illegal, found by bisection.

    An operation that is in progress at a moment proves nothing yet: a read is left out, a write may have taken effect
    or not.
    """
    ends = sorted((each.end_ns, index) for index, each in enumerate(operations) if not each.is_open)
    low, high = next(place for place, (_, index) in enumerate(ends) if index == found.at), len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        kept = [(index, each) for index, each in enumerate(operations) if each.begin_ns <= ends[middle][0]]
        over = {index for _, index in ends[: middle + 1]}
        kept = [(index, each) for index, each in kept if index in over or each.kind in _WRITES]
        part = [each if index in over else replace(each, end_ns=OPEN) for index, each in kept]
        tried = _search(part, starts, most)
        if tried.ruling is Ruling.ILLEGAL:
            high, found = middle, replace(tried, quiet_from=kept[tried.quiet_from][0])
        else:
            low = middle + 1
    return replace(found, at=ends[high][1])


def _without_unseen(operations: Sequence[Operation], reads: _Reads) -> Iterator[tuple[int, Operation]]:
    """Yields all but open puts whose value was not read: these explain no read, and each doubles the states."""
    for index, each in enumerate(operations):
        if not (each.is_open and reads.is_unread(each)):
            yield index, each


def _events(operations: Iterable[tuple[int, Operation]]) -> list[tuple[int, bool, int]]:
    """Returns begins and ends in the order of time. At one instant begins come first: they may have overlapped."""
    events = []
    for index, each in operations:
        events.append((each.begin_ns, False, index))
        if not each.is_open:
            events.append((each.end_ns, True, index))
    return sorted(events)


def _place(reads: _Reads, possible: set[Possible], pending: set[int], index: int, most: int) -> set[Possible]:
    """Returns every state in which operation ``index`` has taken effect, after any of the pending operations."""
    operations, now_ns = reads.operations, reads.operations[index].end_ns
    writes = [each for each in pending if operations[each].kind in _WRITES]
    unread = frozenset(each for each in writes if reads.is_unread(operations[each]))
    readers: dict[Value | None, frozenset[int]] = {}

    def settled(value: Value | None, placed: frozenset[int]) -> Possible:
        if value not in readers:
            others = (each for each in pending if operations[each].kind not in _WRITES)
            readers[value] = frozenset(each for each in others if _may_read(operations[each], value))
        return Possible(value, placed | readers[value])

    done: set[Possible] = set()
    seen = {settled(*state) for state in possible}
    left = list(seen)
    while left:
        state = left.pop()
        if index in state.placed:
            done.add(Possible(state.value, state.placed - {index}))
            continue
        if reads.needs(state, pending, now_ns):
            continue
        for write in writes:
            if write in state.placed:
                continue
            following = settled(_written(operations[write]), state.placed | unread | {write})
            if following not in seen:
                if len(seen) >= most:
                    raise _TooManyError
                seen.add(following)
                left.append(following)
    return done


class _Reads:
    """The values that are read, with their last reads."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self._last_begin_ns: dict[Value | None, int] = {}
        self._puts: dict[Value | None, list[int]] = {}
        self._is_any_seen = False
        for index, each in enumerate(operations):
            if each.kind is Kind.HIT:
                self._last_begin_ns[each.value] = each.begin_ns  # the operations come in the order of their begins
            elif each.kind is Kind.PUT:
                self._puts.setdefault(each.value, []).append(index)
            self._is_any_seen |= each.kind is Kind.HIT_UNKNOWN

    def is_unread(self, write: Operation) -> bool:
        """Returns whether ``write`` is a put whose value certainly no read gives."""
        return write.kind is Kind.PUT and not self._is_any_seen and write.value not in self._last_begin_ns

    def needs(self, state: Possible, pending: set[int], now_ns: int) -> bool:
        """Returns whether a read that has not begun needs the register's value, which cannot come back."""
        if self._last_begin_ns.get(state.value, now_ns) <= now_ns:
            return False
        return not any(
            self.operations[put].begin_ns > now_ns or (put in pending and put not in state.placed)
            for put in self._puts.get(state.value, ())
        )


def _written(operation: Operation) -> Value | None:
    return operation.value if operation.kind is Kind.PUT else None


def _may_read(operation: Operation, value: Value | None) -> bool:
    if operation.kind is Kind.HIT:
        return operation.value == value
    if operation.kind is Kind.HIT_UNKNOWN:
        return value is not None
    return value is None  # for a miss, and for a delete that found nothing
