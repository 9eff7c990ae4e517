"""Whether a key's history is one that a single register could have had: linearizability, decided, not sampled.

The register holds one value or nothing. Each operation must take effect at one instant between its begin and its end:
a put makes its value the register's, a removal empties it, a hit needs exactly its value there and a miss needs
nothing there. A put that the cache gave up, and a removal by a process that was killed meanwhile, may each have taken
effect or not; an open one at any time after its begin.

The search follows Wing and Gong (1993) as Lowe (2017) orders it: events in the order of time; an operation is placed
only when its end is met, with whatever pending ones have to come before it. What is carried along is the set of
all possible states. Where that set grows past a limit the answer is ``UNKNOWN``, which is not ``OK``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from lockcache_stress.history.operations import Kind, Operation, Value

__all__ = ["Checked", "Possible", "Ruling", "check"]

#: Possible states at one time; a history of sixteen processes stays under a hundred.
_MOST_POSSIBLE: Final = 20_000

_EMPTIES: Final = (Kind.REMOVED, Kind.DROPPED)


class Ruling(Enum):
    """What was decided of a history."""

    OK = "ok"
    ILLEGAL = "illegal"
    UNKNOWN = "unknown"


class Possible(NamedTuple):
    """One state that the register may be in."""

    #: ``None``: nothing.
    value: Value | None
    #: Operations (by index) that took effect and have not returned yet.
    placed: frozenset[int]


@dataclass(frozen=True)
class Checked:
    """The outcome of :func:`check`."""

    ruling: Ruling
    #: Index of the operation that cannot have ended as it did; ``None`` if all can.
    at: int | None = None
    #: The last moment before that at which nothing was in progress but what never ended: index of the first operation
    #: after it, and what the register may have held then. What ended before it plays no part.
    quiet_from: int = 0
    quiet_values: frozenset[Value | None] = field(default=frozenset((None,)))


class _TooManyError(Exception):
    """The set of possible states is past its limit."""


def check(
    operations: Sequence[Operation], initially: Iterable[Value | None] = (None,), most: int = _MOST_POSSIBLE
) -> Checked:
    """Judge one key's operations, given in the order of their begins. ``initially``: what the register may hold."""
    starts = frozenset(initially)
    possible = {Possible(value, frozenset()) for value in starts}
    pending: set[int] = set()
    ending = 0  # of the pending ones, those that will end
    quiet, quiet_values = 0, starts
    for _, is_end, index in _events(_without_unseen(operations)):
        if not is_end:
            if not ending:
                quiet, quiet_values = index, frozenset(each.value for each in possible)
            pending.add(index)
            ending += not operations[index].is_open
            continue
        ending -= 1
        try:
            possible = _place(operations, possible, pending, index, most)
        except _TooManyError:
            return Checked(Ruling.UNKNOWN, index, quiet, quiet_values)
        pending.discard(index)
        if not possible:
            return Checked(Ruling.ILLEGAL, index, quiet, quiet_values)
    return Checked(Ruling.OK)


def _without_unseen(operations: Sequence[Operation]) -> Iterator[tuple[int, Operation]]:
    """All but open puts whose value nobody read: they explain nothing, and each of them doubles the states."""
    read = {each.value for each in operations if each.kind is Kind.HIT}
    is_any_seen = any(each.kind is Kind.HIT_UNKNOWN for each in operations)
    for index, each in enumerate(operations):
        if is_any_seen or not each.is_open or each.kind is not Kind.PUT or each.value in read:
            yield index, each


def _events(operations: Iterable[tuple[int, Operation]]) -> list[tuple[int, bool, int]]:
    """Begins and ends in the order of time. At one instant begins come first: what touches may have overlapped."""
    events = []
    for index, each in operations:
        events.append((each.begin_ns, False, index))
        if not each.is_open:
            events.append((each.end_ns, True, index))
    return sorted(events)


def _place(
    operations: Sequence[Operation], possible: set[Possible], pending: set[int], index: int, most: int
) -> set[Possible]:
    """Every state in which operation ``index`` has taken effect, whatever pending ones came before it."""
    done: set[Possible] = set()
    seen = set(possible)
    left = list(possible)
    while left:
        state = left.pop()
        if index in state.placed:
            done.add(Possible(state.value, state.placed - {index}))
            continue
        for following in _steps(operations, state, pending):
            if following not in seen:
                if len(seen) >= most:
                    raise _TooManyError
                seen.add(following)
                left.append(following)
    return done


def _steps(operations: Sequence[Operation], state: Possible, pending: set[int]) -> Iterable[Possible]:
    for index in pending - state.placed:
        operation, placed = operations[index], state.placed | {index}
        if operation.kind is Kind.PUT:
            yield Possible(operation.value, placed)
        elif operation.kind in _EMPTIES:
            yield Possible(None, placed)
        elif _may_read(operation, state.value):
            yield Possible(state.value, placed)


def _may_read(operation: Operation, value: Value | None) -> bool:
    if operation.kind is Kind.HIT:
        return operation.value == value
    if operation.kind is Kind.HIT_UNKNOWN:
        return value is not None
    return value is None  # a miss, or a delete that found nothing
