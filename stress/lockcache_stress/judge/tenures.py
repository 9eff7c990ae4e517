# SPDX-License-Identifier: Apache-2.0
"""Tenures: did two daemons ever keep one directory at once? Judged from the log of each daemon. Pure.

The lines of a log have times on the clock that all processes of the machine share (``monotonic_ns``). A daemon's tenure
begins, at the latest, with its line ``start``, and lasts, at the least, until the signal that ended it was sent: a
daemon takes the lock before it writes that line, and the lock is free only after the signal. So tenures that overlap
prove that two daemons kept the directory. Every sweep has to lie in a tenure of its own daemon, and in none of another
daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_MS = 1_000_000


@dataclass(frozen=True)
class Life:
    """One daemon process, from its log."""

    name: str
    events: Sequence[Mapping[str, Any]]
    #: The time at which the signal that ended it was sent.
    ended_ns: int

    @property
    def started_ns(self) -> int | None:
        """The time from which it certainly kept the directory."""
        return self._first("start")

    @property
    def stood_by_ns(self) -> int | None:
        """The time from which it waited."""
        return self._first("standby")

    def sweeps(self) -> list[tuple[int, int]]:
        """Returns the begin and the end of each complete sweep."""
        return [
            (event["monotonic_ns"] - int(event["milliseconds"] * _MS), event["monotonic_ns"])
            for event in self.events
            if event["event"] == "sweep"
        ]

    def _first(self, kind: str) -> int | None:
        return next((event["monotonic_ns"] for event in self.events if event["event"] == kind), None)


@dataclass
class TenureVerdict:
    """The verdict on the tenures: what is wrong, in words, and the takeovers."""

    wrong: list[str] = field(default_factory=list)
    tenures: int = 0
    sweeps: int = 0
    #: The time of each takeover: from the death of the daemon that kept the directory to the start of a standby.
    takeovers_ns: list[int] = field(default_factory=list)


def judge_tenures(lives: Iterable[Life]) -> TenureVerdict:
    """Judge the logs of all daemons of one directory."""
    every = list(lives)
    verdict = TenureVerdict()
    tenures = sorted((life.started_ns, life.ended_ns, life) for life in every if life.started_ns is not None)
    verdict.tenures = len(tenures)
    for (began_ns, ended_ns, before), (next_ns, _, after) in pairwise(tenures):
        if next_ns < ended_ns:
            verdict.wrong.append(
                f"{after.name} kept the directory {(ended_ns - next_ns) / _MS:.1f} ms before {before.name} was ended, "
                f"which had it for {(next_ns - began_ns) / _MS:.1f} ms"
            )
        elif after.stood_by_ns is not None and after.stood_by_ns < ended_ns:
            verdict.takeovers_ns.append(next_ns - ended_ns)
    for life in every:
        _judge_sweeps(life, every, verdict)
    return verdict


def _judge_sweeps(life: Life, every: list[Life], verdict: TenureVerdict) -> None:
    for began_ns, ended_ns in life.sweeps():
        verdict.sweeps += 1
        if life.started_ns is None:
            verdict.wrong.append(f"{life.name} swept without keeping the directory")
        for other in every:
            if other is life or other.started_ns is None:
                continue
            if began_ns < other.ended_ns and other.started_ns < ended_ns:
                verdict.wrong.append(f"{life.name} swept while {other.name} kept the directory")
