# SPDX-License-Identifier: Apache-2.0
"""All keys of a run, judged: how many histories are legal, and the smallest part of one that is not.

An illegal history is first cut at both ends: after the operation that cannot have ended as it did, and before the last
moment at which no operation was in progress, because of the time before only the possible values of the register
matter. Then reads are left out, one after the other, as long as the rest stays illegal. Writes and removals are never
left out, because a history without one would be another history. The result is checked again, so that a legal part is
never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockcache_stress.judge.linearizability import Checked, Ruling, check, held_before, is_illegal
from lockcache_stress.judge.operations import OPEN, Kind, Operation, Value

# Each try may take a second where hours of overlapping operations lie before the mistake.
_MOST_TRIES = 60

_READS = (Kind.HIT, Kind.MISS, Kind.ABSENT, Kind.HIT_UNKNOWN)


@dataclass(frozen=True)
class Reduced:
    """A part of one key's history that cannot have happened."""

    operations: list[Operation]
    #: The possible values of the register when this part begins.
    initially: frozenset[Value | None]
    #: The operation that cannot have ended as it did.
    impossible: Operation


def reduce_history(operations: Sequence[Operation], checked: Checked) -> Reduced:
    """Returns the smallest illegal part. Requires: ``checked`` is the result of :func:`check`, and is illegal."""
    if checked.at is None:
        raise ValueError(f"a history that is {checked.ruling.value} has no illegal part")
    last = operations[checked.at]
    window = [each for each in operations if each.begin_ns <= last.end_ns]
    first = operations[checked.quiet_from]
    before, late = _parted(operations, checked.quiet_from, last)
    held = held_before(first, before, _NOTHING)
    part, initially = (late, held) if is_illegal(late, held) else (window, _NOTHING)
    part = _without_reads(part, initially, last)
    impossible = check(part, initially).at
    return Reduced(part, initially, last if impossible is None else part[impossible])


def _parted(
    operations: Sequence[Operation], quiet_from: int, last: Operation
) -> tuple[list[Operation], list[Operation]]:
    """Returns the operations that matter before the quiet moment, and those from there to the end of ``last``.

    A write that was in progress both at that moment and after ``last`` is in both parts, because it may have taken
    effect in either. Such a read is in neither, because it proves nothing.
    """
    before, late = [], []
    for index, each in enumerate(operations):
        if index >= quiet_from:
            late += [each] if each.begin_ns <= last.end_ns else []
        elif each.end_ns <= last.end_ns:
            before.append(each)
        elif each.kind not in _READS:
            before.append(replace(each, end_ns=OPEN))
            late.append(each)
    return before, late


def _without_reads(part: list[Operation], initially: frozenset[Value | None], last: Operation) -> list[Operation]:
    """Leave out reads, first half of them, then fewer at once, until none can be left out or enough was tried."""
    tries, size = _MOST_TRIES, sum(each.kind in _READS for each in part)
    while size and tries:
        reads = [each for each in part if each.kind in _READS and each is not last]
        for start in range(0, len(reads), size):
            left_out = {id(each) for each in reads[start : start + size]}
            less = [each for each in part if id(each) not in left_out]
            tries -= 1
            if is_illegal(less, initially):
                part = less
            if not tries:
                break
        size //= 2
    return part


_NOTHING: frozenset[Value | None] = frozenset((None,))


@dataclass
class Judged:
    """The judgement on the histories of a run."""

    operations: int = 0
    ok: int = 0
    #: The keys whose histories no register could have had; the next field has those that were too complex to decide.
    illegal: list[int] = field(default_factory=list)
    #: The number of removals of each key's entry.
    removals: dict[int, int] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    #: The shortest illegal history: its key, and its part that shows why it is illegal.
    smallest: tuple[int, Reduced] | None = None
    #: The round of that history, where the run has several.
    smallest_in: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the judgement as numbers."""
        return {"operations": self.operations, "ok": self.ok, "illegal": self.illegal, "unknown": self.unknown}


def judge_histories(
    histories: Mapping[int, list[Operation]], progress: Callable[[float], object] = lambda share: None
) -> Judged:
    """Check every key. ``progress`` is called with the share that is done."""
    judged = Judged(operations=sum(map(len, histories.values())))
    found: dict[int, Checked] = {}
    for number, (key, operations) in enumerate(sorted(histories.items())):
        judged.removals[key] = sum(each.kind is Kind.REMOVED for each in operations)
        checked = check(operations)
        if checked.ruling is Ruling.OK:
            judged.ok += 1
        elif checked.ruling is Ruling.UNKNOWN:
            judged.unknown.append(key)
        else:
            judged.illegal.append(key)
            found[key] = checked
        progress((number + 1) / len(histories))
    reduced = {key: reduce_history(histories[key], checked) for key, checked in found.items()}
    if reduced:
        key = min(reduced, key=lambda each: len(reduced[each].operations))
        judged.smallest = key, reduced[key]
    return judged
