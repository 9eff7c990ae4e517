# SPDX-License-Identifier: Apache-2.0
"""The counts and times of a demonstration, and what must hold of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockcache_stress.experiments.demo.member import Answer, DemoPlan
from lockcache_stress.run import Check, equal, zero


@dataclass(frozen=True)
class Start:
    """All processes start at the same moment and want every kernel once."""

    name: str
    is_cached: bool
    answers: Sequence[Answer]

    @property
    def compiles(self) -> int:
        return sum(answer.compiles for answer in self.answers)

    @property
    def seconds(self) -> float:
        """The time until the last process has all kernels."""
        return max((answer.seconds for answer in self.answers), default=0.0)

    @property
    def cpu_seconds(self) -> float:
        return sum(answer.cpu_seconds for answer in self.answers)


@dataclass(frozen=True)
class Kept:
    """All processes want kernels at random, under a cap that is too small for all of them, and a daemon."""

    answers: Sequence[Answer]
    cap_bytes: int
    peak_bytes: int
    #: How often the bytes on disk were measured.
    samples: int
    #: Entries that programs evicted to make room for their own, and those that the daemon evicted in advance.
    program_evictions: int
    daemon_evictions: int
    #: The daemon's complaint or death; empty if there is none.
    trouble: str

    @property
    def requests(self) -> int:
        return sum(len(answer.got) for answer in self.answers)

    @property
    def compiles(self) -> int:
        return sum(answer.compiles for answer in self.answers)


@dataclass
class DemoOutcome:
    """All parts of one demonstration."""

    plan: DemoPlan
    #: The digest of each kernel, as the first process compiled it without a cache.
    references: Mapping[int, str] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "demo"

    @property
    def title(self) -> str:
        return f"demo: {self.plan.processes} processes x {self.plan.kernels} kernels, seed {self.plan.seed}"

    @property
    def deaths(self) -> list[str]:
        """A member that dies is an error, which ends the run."""
        return []

    @property
    def findings(self) -> list[dict[str, Any]]:
        return []

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks())

    @property
    def results(self) -> int:
        """The number of kernels that processes got and that were compared."""
        return sum(len(answer.got) for answer in self._answers())

    @property
    def wrong(self) -> int:
        """The number of results that are not the bytes of a compilation without a cache."""
        got = (found for answer in self._answers() for found in answer.got)
        return sum(self.references[number] != digest for number, digest in got)

    def _answers(self) -> Iterator[Answer]:
        for start in self.starts:
            yield from start.answers
        for kept in self.kept:
            yield from kept.answers

    def checks(self) -> list[Check]:
        """Returns what must hold, line by line."""
        plan = self.plan
        lines = [zero("results with other bytes than without a cache", self.wrong)]
        for number, start in enumerate(self.starts):
            expected = plan.kernels * (plan.processes if not start.is_cached else number % 2 == 0)
            lines.append(equal(f"{start.name}: compilations", start.compiles, expected))
        for kept in self.kept:
            share = f"{kept.peak_bytes:,} of {kept.cap_bytes:,} bytes"
            lines.append(Check("peak on disk <= cap", share, "<= the cap", kept.peak_bytes <= kept.cap_bytes))
            lines.append(Check("daemon", kept.trouble or "no complaint", "no complaint", not kept.trouble))
        return lines

    def summary(self) -> Sequence[str]:
        return [f"{self.results:,}", f"{self.wrong:,}"]

    def as_json(self) -> dict[str, Any]:
        names = ("compiles", "seconds", "cpu_seconds")
        fields = ("requests", "compiles", "cap_bytes", "peak_bytes", "samples", "program_evictions", "daemon_evictions")
        return {
            "ok": self.ok,
            "processes": self.plan.processes,
            "kernels": self.plan.kernels,
            "seed": self.plan.seed,
            "results": self.results,
            "wrong": self.wrong,
            "starts": [{"name": each.name, **{name: getattr(each, name) for name in names}} for each in self.starts],
            "kept": [{name: getattr(each, name) for name in fields} for each in self.kept],
            "checks": [vars(check) for check in self.checks()],
        }
