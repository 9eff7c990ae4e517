# SPDX-License-Identifier: Apache-2.0
"""The herd: many processes want the same templated kernels at once, and each kernel is compiled once.

A run compiles the references first, then takes all processes through both phases, then inspects what is left. Whatever
happens (Ctrl-C, a member that dies or hangs, an error here), no process is left when :func:`run_herd` ends. The bytes
of every process are compared with a reference; :class:`HerdOutcome` says what must hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lockcache import FileStreamProgramCache
from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.herd_member import (
    PHASES,
    UNCACHED,
    Answer,
    Compiled,
    HerdOptions,
    HerdPlan,
    run_member,
    run_reference,
    write_headers,
)
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import Group
from lockcache_stress.run import Check, equal, zero
from lockcache_stress.trouble import open_workspace


@dataclass
class Phase:
    """One phase, in which every process of the herd wanted every kernel."""

    #: The number of compilations by NVRTC.
    compiles: int
    answers: list[Answer]
    #: The time from the start to the last answer.
    seconds: float
    references: dict[int, Compiled]
    #: The references as they were before the header changed.
    outdated: dict[int, Compiled] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """The number of programs that processes asked for and got."""
        return sum(len(answer.compiled) for answer in self.answers)

    @property
    def hits(self) -> int:
        """The programs that were answered without compiling."""
        return max(self.calls - self.compiles, 0)

    @property
    def stale(self) -> int:
        """The number of programs that were right before the header changed."""
        return self._count(self._is_stale)

    @property
    def wrong(self) -> int:
        """The number of programs that were never right, neither now nor before the header changed."""
        return self._count(
            lambda number, found: found.digest != self.references[number].digest and not self._is_stale(number, found)
        )

    @property
    def wrong_mappings(self) -> int:
        """The number of symbol mappings that differ from the reference's."""
        return self._count(lambda number, found: found.symbol_mapping != self.references[number].symbol_mapping)

    def _is_stale(self, number: int, found: Compiled) -> bool:
        return number in self.outdated and found.digest == self.outdated[number].digest

    def _count(self, is_so: Any) -> int:
        return sum(is_so(number, found) for answer in self.answers for number, found in answer.compiled.items())


@dataclass
class HerdOutcome:
    """The counts, times and errors of one herd."""

    plan: HerdPlan
    phases: list[Phase] = field(default_factory=list)
    #: The time that one process takes to compile every kernel, with no cache and no other process.
    alone_seconds: float = 0.0
    #: The exit of each member that should not have ended.
    deaths: list[str] = field(default_factory=list)
    lease_files: int = 0
    staged_files: int = 0
    #: Entries that the herd added.
    entries: int = 0
    name: str = "herd"

    @property
    def title(self) -> str:
        options = self.plan.options
        return f"herd: {options.processes} processes x {options.kernels} kernels, seed {options.seed}"

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks())

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The errors of all members."""
        return [{"error": answer.error} for phase in self.phases for answer in phase.answers if answer.error]

    def checks(self) -> list[Check]:
        lines: list[Check] = []
        for number, phase in enumerate(self.phases):
            lines += self._phase(number, phase)
        return [*lines, *self._left(), *self._ratios()]

    def summary(self) -> Sequence[str]:
        wrong = self._sum("wrong") + self._sum("wrong_mappings")
        counts = [self._sum("calls"), self._sum("hits"), wrong, self._sum("stale"), 0, len(self.deaths)]
        return [*(f"{count:,}" for count in counts), "no cap"]

    def as_json(self) -> dict[str, Any]:
        options = self.plan.options
        return {
            "scenario": self.name,
            "ok": self.ok,
            "processes": options.processes,
            "kernels": options.kernels,
            "seed": options.seed,
            "phases": [self._phase_json(number, phase) for number, phase in enumerate(self.phases)],
            "alone_seconds": round(self.alone_seconds, 3),
            "herd_over_alone": self._ratio(),
            "worker_deaths": self.deaths,
            "lease_files": self.lease_files,
            "staged_files": self.staged_files,
            "entries": self.entries,
            "findings": self.findings,
            "checks": [vars(check) for check in self.checks()],
        }

    def _phase(self, number: int, phase: Phase) -> list[Check]:
        options, name = self.plan.options, self.plan.phases[number]
        calls = options.kernels * options.processes
        wanted = calls if name == UNCACHED else options.kernels
        starts = "each with its own" if self.plan.is_spread(number) else "all with the same"
        lines = [
            Check(f"{name}: processes begin", starts),
            Check(
                f"{name}: compiles == {'programs got' if name == UNCACHED else 'distinct kernels'}",
                f"{phase.compiles} {'==' if phase.compiles == wanted else '!='} {wanted}",
                f"{wanted}",
                phase.compiles == wanted,
            ),
            equal(f"{name}: programs got", phase.calls, calls),
            Check(f"{name}: hits", f"{phase.hits:,}"),
            zero(f"{name}: wrong cubins", phase.wrong),
            zero(f"{name}: wrong symbol mappings", phase.wrong_mappings),
        ]
        if phase.outdated:
            lines.append(zero(f"{name}: stale cubins", phase.stale))
            changed = sum(phase.outdated[n].digest != found.digest for n, found in phase.references.items())
            lines.append(equal(f"{name}: references that changed", changed, wanted))
        return lines

    def _left(self) -> list[Check]:
        dropped = sum(answer.dropped_writes for phase in self.phases[-1:] for answer in phase.answers)
        return [
            zero("worker deaths", len(self.deaths)),
            zero("lease files left", self.lease_files),
            zero("staged files left", self.staged_files),
            zero("dropped writes", dropped),
            equal("entries made", self.entries, self.plan.options.kernels * len(PHASES)),
        ]

    def _ratios(self) -> list[Check]:
        if not self.phases or not self.alone_seconds:
            return []
        herd = f"{self._ratio():.2f}x ({self.phases[0].seconds:.1f} s / {self.alone_seconds:.1f} s)"
        lines = [Check("cold herd over one process alone", herd)]
        if len(self.phases) > len(PHASES):
            cold, uncached = self.phases[0].seconds, self.phases[-1].seconds
            lines.append(
                Check("without the cache over with it", f"{uncached / cold:.2f}x ({uncached:.2f} s / {cold:.2f} s)")
            )
        return lines

    def _ratio(self) -> float:
        return round(self.phases[0].seconds / self.alone_seconds, 3) if self.phases and self.alone_seconds else 0.0

    def _phase_json(self, number: int, phase: Phase) -> dict[str, Any]:
        return {
            "phase": self.plan.phases[number],
            "is_spread": self.plan.is_spread(number),
            **{name: getattr(phase, name) for name in ("compiles", "calls", "hits", "stale", "wrong")},
            "wrong_mappings": phase.wrong_mappings,
            "seconds": round(phase.seconds, 3),
        }

    def _sum(self, name: str) -> int:
        return sum(getattr(phase, name) for phase in self.phases)


def run_herd(options: HerdOptions, show: Callable[[str, float, str], None]) -> HerdOutcome:
    """Run a herd. Raises :class:`UnusableError` where there is no NVRTC."""
    if not has_nvrtc():
        raise UnusableError(f"the herd needs cuda.core and NVRTC: {how_to_install('cuda')}")
    with open_workspace(options.directory) as space:
        plan = HerdPlan(options, space.cache, space.control)
        outcome = HerdOutcome(plan)
        cache = FileStreamProgramCache(plan.directory)
        before = len(cache)
        show("herd", 0.0, "references")
        references = _references(plan, outcome)
        with Group(run_member, (plan,), options.processes, len(plan.phases)) as herd:
            for number, name in enumerate(plan.phases):
                show("herd", (1 + number) / (1 + len(plan.phases)), f"{options.processes} processes, {name}")
                _add_phase(plan, herd, outcome, references)
            outcome.deaths = herd.deaths
        outcome.entries = len(cache) - before
        outcome.lease_files = _count_leases(os.path.join(plan.directory, "lockcache", "leases"))
        outcome.staged_files = _count_files(os.path.join(plan.directory, "tmp"))
        show("herd", 1.0, f"{outcome.phases[0].compiles} compiles")
        return outcome


def _add_phase(plan: HerdPlan, herd: Group, outcome: HerdOutcome, references: list[dict[int, Compiled]]) -> None:
    number, began = len(outcome.phases), 0.0

    def prepare() -> None:
        """Write the headers, while all members are ready and none reads a header."""
        nonlocal began
        write_headers(plan, number)
        began = time.monotonic()

    answers = herd.run_phase(number, before=prepare)
    seconds = time.monotonic() - began
    compiles = _count_lines(plan.compiled(number))
    outdated = references[0] if number == 1 else {}
    outcome.phases.append(Phase(compiles, answers, seconds, references[min(number, 1)], outdated))


def _references(plan: HerdPlan, outcome: HerdOutcome) -> list[dict[int, Compiled]]:
    """Returns the right code of every kernel in each phase, compiled by one process without a cache.

    Leaves the headers as they are in the first phase.
    """
    found: list[dict[int, Compiled]] = []
    with Group(run_reference, (plan,), 1, len(PHASES), needs_all=True) as alone:
        for phase in range(len(PHASES)):
            [answer] = alone.run_phase(phase, before=partial(write_headers, plan, phase))
            found.append(answer.compiled)
            outcome.alone_seconds = outcome.alone_seconds or answer.seconds
    write_headers(plan, 0)
    return found


def _count_files(path: str) -> int:
    return sum(len(files) for _, _, files in os.walk(path))


def _count_leases(path: str) -> int:
    """Returns the number of leases that were not given back.

    Who had the turn to read headers that had just changed leaves a note for ten seconds that nobody need wait for it.
    """
    return sum(b"failed_ns" not in file.read_bytes() for file in Path(path).glob("*"))


def _count_lines(path: str) -> int:
    try:
        with open(path) as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0
