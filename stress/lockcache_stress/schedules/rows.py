# SPDX-License-Identifier: Apache-2.0
"""Rows: moments of one run at which one process may be preempted by the same other one, of which the later come first.

Between two processes, a preemption in front of a call is the same as one behind it, where the call commutes with all
that the other process then makes before the first one goes on. The run with the later one shows what that is, so that
only those earlier ones are run that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lockcache_stress.schedules.calls import Access, Seen
from lockcache_stress.schedules.running import Decision, Ran


@dataclass
class Row:
    """Decisions of one run, for the same choice in the place of the same process. The last one is the next."""

    #: What the run did.
    choices: bytes
    calls: Sequence[tuple[int, object, tuple[Access, ...]]]
    decisions: list[Decision]
    #: What the other process did after the last decision until the first one went on, and when that decision was.
    _met: Seen | None = field(default=None, init=False)
    _at: int = field(default=0, init=False)

    @property
    def preemptions(self) -> int:
        return self.decisions[-1].preemptions

    def next(self) -> tuple[bytes, Decision] | None:
        """Returns the choices of the next run; ``None`` if the others are those that were run."""
        while self.decisions:
            decision = self.decisions.pop()
            if self._met is None or self._differs(decision, self._met):
                return self.choices[: decision.at] + bytes([decision.choice]), decision
        return None

    def _differs(self, decision: Decision, met: Seen) -> bool:
        return any(met.meets_other(number, used) for number, _, used in self.calls[decision.at : self._at])

    def note(self, decision: Decision, ran: Ran, *, is_right: bool) -> None:
        """Note the run of a decision. A wrong one says nothing of others."""
        self._met, self._at = Seen() if is_right and len(ran.processes) == 2 else None, decision.at
        for number, _call, used in ran.calls[decision.at :]:
            if self._met is None or number != decision.choice:
                break
            self._met.add(number, used)


def rows_of(ran: Ran, decisions: Sequence[Decision], most_preemptions: int) -> Iterator[Row]:
    """Yields the rows of these decisions, which are in the order of their moments.

    A death behind a preemption is another one than before it: where one can still follow, each decision is a row.
    """
    open_rows: dict[tuple[int, int, int], Row] = {}
    rows: list[Row] = []
    choices = bytes(ran.choices)
    for each in decisions:
        key = each.process, each.choice, each.preemptions
        row = open_rows.get(key)
        is_alone = each.used is None or each.preemptions + 2 <= most_preemptions
        if row is not None and not is_alone and _is_by_one(ran, row.decisions[-1].at, each):
            row.decisions.append(each)
            continue
        row = Row(choices, ran.calls, [each])
        rows.append(row)
        if is_alone:
            open_rows.pop(key, None)
        else:
            open_rows[key] = row
    yield from rows


def _is_by_one(ran: Ran, begin: int, decision: Decision) -> bool:
    """Returns whether all calls up to a decision are by the process that is preempted there."""
    return all(number == decision.process and call is not None for number, call, _ in ran.calls[begin : decision.at])
