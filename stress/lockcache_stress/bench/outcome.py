"""A benchmark's lines as what a report can show: a verdict, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.bench.base import Line
from lockcache_stress.run import Check

__all__ = ["BenchOutcome"]

_NOT_MEASURED: Final = "not measured"


@dataclass
class BenchOutcome:
    """What was measured, and on what."""

    lines: Sequence[Line]
    machine: Mapping[str, str]
    quick: bool = False
    name: str = "bench"
    deaths: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What was run."""
        few = ", few repetitions: to see it run, not to believe the numbers" if self.quick else ""
        return f"bench: {len(self.lines)} lines{few}"

    @property
    def ok(self) -> bool:
        """Whether every bar holds."""
        return all(line.ok for line in self.lines)

    def checks(self) -> list[Check]:
        """A bar's check says the ratio that it is about, where there is one."""
        return [Check(line.name, _value(line), line.bar, line.ok) for line in self.lines]

    def summary(self) -> Sequence[str]:
        """As many cells as a scenario has: lines, and nothing of the others."""
        return [f"{len(self.lines):,}", *[""] * 6]

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        lines = [vars(line) for line in self.lines]
        return {"machine": dict(self.machine), "quick": self.quick, "ok": self.ok, "lines": lines}


def _value(line: Line) -> str:
    if line.skipped:
        return f"{_NOT_MEASURED}: {line.skipped}"
    busy = "" if line.load is None else f", at a load of {line.load:.1f}"
    return f"{line.ours} ({line.ratio}){busy}" if line.ratio else f"{line.ours}{busy}"
