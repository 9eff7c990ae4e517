"""The outcome of a herd: what it found, and which of it is not as it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockcache_stress.experiments.herd.member import Answer, Compiled
from lockcache_stress.experiments.herd.plan import PHASES, UNCACHED, HerdPlan
from lockcache_stress.run import Check, equal, zero

__all__ = ["HerdOutcome", "Phase"]


@dataclass
class Phase:
    """One time that the whole herd wanted every kernel."""

    #: Compilations that NVRTC was asked for.
    compiles: int
    answers: list[Answer]
    #: From the start to the last answer.
    seconds: float
    references: dict[int, Compiled]
    #: What the references were before the header changed.
    outdated: dict[int, Compiled] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Compilations that were asked for and answered."""
        return sum(len(answer.compiled) for answer in self.answers)

    @property
    def hits(self) -> int:
        """Those that were answered without compiling."""
        return max(self.calls - self.compiles, 0)

    @property
    def stale(self) -> int:
        """Programs that were right before the header changed."""
        return self._count(self._is_stale)

    @property
    def wrong(self) -> int:
        """Programs that are nobody's reference."""
        return self._count(
            lambda number, found: found.digest != self.references[number].digest and not self._is_stale(number, found)
        )

    @property
    def wrong_mappings(self) -> int:
        """Symbol mappings other than the reference's."""
        return self._count(lambda number, found: found.symbol_mapping != self.references[number].symbol_mapping)

    def _is_stale(self, number: int, found: Compiled) -> bool:
        return number in self.outdated and found.digest == self.outdated[number].digest

    def _count(self, is_so: Any) -> int:
        return sum(is_so(number, found) for answer in self.answers for number, found in answer.compiled.items())


@dataclass
class HerdOutcome:
    """Everything that one herd counted, measured and found."""

    plan: HerdPlan
    phases: list[Phase] = field(default_factory=list)
    #: One process compiling every kernel, with no cache and no other process.
    alone_seconds: float = 0.0
    #: How members ended that should not have.
    deaths: list[str] = field(default_factory=list)
    lease_files: int = 0
    staged_files: int = 0
    #: Entries that the herd added.
    entries: int = 0
    name: str = "herd"

    @property
    def title(self) -> str:
        """What was run."""
        options = self.plan.options
        return f"herd: {options.processes} processes x {options.kernels} kernels, seed {options.seed}"

    @property
    def ok(self) -> bool:
        """Whether everything is as it must be."""
        return all(check.ok for check in self.checks())

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Errors that members met."""
        return [{"error": answer.error} for phase in self.phases for answer in phase.answers if answer.error]

    def checks(self) -> list[Check]:
        """The verdict, line by line."""
        lines: list[Check] = []
        for number, phase in enumerate(self.phases):
            lines += self._phase(number, phase)
        return [*lines, *self._left(), *self._ratios()]

    def summary(self) -> Sequence[str]:
        """Operations, hits, torn, stale, foreign, deaths, peak over cap."""
        wrong = self._sum("wrong") + self._sum("wrong_mappings")
        counts = [self._sum("calls"), self._sum("hits"), wrong, self._sum("stale"), 0, len(self.deaths)]
        return [*(f"{count:,}" for count in counts), "no cap"]

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
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
