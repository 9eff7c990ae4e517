# SPDX-License-Identifier: Apache-2.0
"""The plan of a run of the GPU kit: its options, its rows, and the result of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.run import Check, Reportable, Show, Tabled, zero

#: The architecture to compile for where no kernel can be launched.
ARCH_WITHOUT_GPU: Final = "sm_90"


class NotRunError(Exception):
    """Raised by a row that finds, when it tries, that what it needs does not run here, even without lockcache."""


@dataclass(frozen=True)
class KitOptions:
    """The options of a run."""

    seconds: float
    processes: int
    seed: int
    #: The names of the rows to run; all rows if empty.
    names: Sequence[str] = ()
    plant: str | None = None


@dataclass(frozen=True)
class Kit:
    """The tools of a row."""

    options: KitOptions
    #: The GPU's architecture; ``None`` where there is no GPU.
    gpu_arch: str | None
    #: This row's part of the time.
    seconds: float
    show: Show

    @property
    def arch(self) -> str:
        """The architecture to compile for."""
        return self.gpu_arch or ARCH_WITHOUT_GPU

    @property
    def notes(self) -> list[str]:
        """The notes of a row that launches kernels, where none can be launched."""
        return [] if self.gpu_arch else ["no GPU: nothing was launched"]


@dataclass
class Found:
    """The result of one row: a line of the table, and the outcome that is reported in full."""

    #: What the row did, in a few words.
    did: str
    outcome: Reportable
    compiles: int | None = None
    launches: int | None = None
    #: The number of wrong results, bytes or mappings.
    wrong: int = 0
    #: What the row could not do.
    notes: list[str] = field(default_factory=list)
    row: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Returns the output of ``--json``."""
        line = {"row": self.row, "ok": self.outcome.ok, "did": self.did, "compiles": self.compiles}
        line |= {"launches": self.launches, "wrong": self.wrong, "notes": self.notes}
        return {**line, "seconds": round(self.seconds, 3), "outcome": self.outcome.as_json()}


@dataclass(frozen=True)
class Row:
    """One row of the kit."""

    name: str
    help: str
    #: Its share of the time, relative to the other rows.
    weight: int
    run: Callable[[Kit], Found]
    #: Returns why the row cannot be run here, given the GPU's architecture; ``None`` if it can.
    why_not: Callable[[str | None], str | None]


def measured(
    name: str,
    title: str,
    lines: Iterable[Check],
    numbers: Mapping[str, Any],
    *,
    operations: int = 0,
    hits: int = 0,
    wrong: int = 0,
    peak: str = "no cap",
    deaths: Sequence[str] = (),
    findings: Sequence[dict[str, Any]] = (),
) -> Tabled:
    """Returns the outcome of a row that is not a scenario."""
    return Tabled(
        name,
        title,
        [*lines, zero("worker deaths", len(deaths)), zero("errors", len(findings))],
        {**numbers, "worker_deaths": list(deaths)},
        [*(f"{count:,}" for count in (operations, hits, wrong, 0, 0, len(deaths))), peak],
        findings=list(findings),
        deaths=list(deaths),
    )
