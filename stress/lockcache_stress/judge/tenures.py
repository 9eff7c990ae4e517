"""Tenures: did two daemons ever keep one directory at once? Judged from what each of them logged. Pure.

A daemon's lines carry the clock that all processes of the machine share (``monotonic_ns``). Its tenure begins, at the
latest, with its line ``start``, and lasts, at the least, until somebody sent it the signal that ended it: the lock is
taken before that line is written, and falls after the signal. So tenures that overlap prove that two kept the
directory; and every sweep has to lie in a tenure of its own daemon, and in none of another's.
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
    #: When the signal that ended it was sent.
    ended_ns: int

    @property
    def started_ns(self) -> int | None:
        """Since when it kept the directory for sure."""
        return self._first("start")

    @property
    def stood_by_ns(self) -> int | None:
        """Since when it waited."""
        return self._first("standby")

    def sweeps(self) -> list[tuple[int, int]]:
        """Returns when each complete sweep began and ended."""
        return [
            (event["monotonic_ns"] - int(event["milliseconds"] * _MS), event["monotonic_ns"])
            for event in self.events
            if event["event"] == "sweep"
        ]

    def _first(self, kind: str) -> int | None:
        return next((event["monotonic_ns"] for event in self.events if event["event"] == kind), None)


@dataclass
class TenureVerdict:
    """What is wrong with the tenures, in words, and the takeovers."""

    wrong: list[str] = field(default_factory=list)
    tenures: int = 0
    sweeps: int = 0
    #: From the death of one that kept the directory to the start of one that stood by then.
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
