"""Outcomes of what is not a scenario: checks as every run has them, and tables where a list is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.run.outcome import Check

__all__ = ["Grid", "GridRow", "Tabled"]

# Operations, hits, torn, stale, foreign, deaths, peak over cap.
_SUMMARY_CELLS: Final = 7


@dataclass(frozen=True)
class GridRow:
    """One line of a table; the first cell is its name."""

    cells: Sequence[str]
    ok: bool = True


@dataclass(frozen=True)
class Grid:
    """A table, on the terminal and in a page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[GridRow]
    #: Whether each row has its verdict behind it; without, its cells say what is wrong.
    judges_rows: bool = True


@dataclass
class Tabled:
    """What can be reported like the outcome of a scenario."""

    name: str
    title: str
    lines: Sequence[Check]
    #: For ``--json``, in addition to name, verdict and checks.
    numbers: Mapping[str, Any]
    #: How much was done, and what else of a scenario's summary there is.
    counts: Sequence[str]
    grids: Sequence[Grid] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything is as it must be."""
        return all(line.ok for line in self.lines)

    def checks(self) -> list[Check]:
        """The verdict, line by line."""
        return list(self.lines)

    def summary(self) -> Sequence[str]:
        """As many cells as a scenario has."""
        return [*self.counts, *[""] * (_SUMMARY_CELLS - len(self.counts))]

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        checks = [vars(line) for line in self.lines]
        return {"scenario": self.name, "ok": self.ok, **self.numbers, "findings": self.findings, "checks": checks}
