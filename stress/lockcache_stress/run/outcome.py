# SPDX-License-Identifier: Apache-2.0
"""Outcomes: the findings of a run and its checks, and tables for runs of which a list of checks says too little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from lockcache_stress.judge import Judged
from lockcache_stress.plan import Plan
from lockcache_stress.run.counters import Latencies
from lockcache_stress.run.sampler import Peaks

# So many evictions of entries in use may be coincidence, however few evictions there were.
_FEW: Final = 2
# The cells are operations, hits, torn, stale, foreign, deaths, peak over cap.
_SUMMARY_CELLS: Final = 7


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    name: str
    value: str
    #: The condition, in words; empty for a value that is only reported.
    must: str = ""
    ok: bool = True


def zero(name: str, count: int) -> Check:
    """Returns the check of a count that must be zero."""
    return Check(name, f"{count:,}", "0", not count)


def some(name: str, count: int) -> Check:
    """Returns the check of a count that must not be zero, or the run proves nothing."""
    return Check(name, f"{count:,}", "> 0", count > 0)


def equal(name: str, count: int, wanted: int) -> Check:
    """Returns the check of a count that must be ``wanted``."""
    return Check(name, f"{count:,}", f"{wanted:,}", count == wanted)


class Reportable(Protocol):
    """An outcome that can be printed: a verdict, its checks, and the findings."""

    @property
    def name(self) -> str:
        """The name of the scenario or the command."""

    @property
    def title(self) -> str:
        """The title of the run."""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""

    @property
    def deaths(self) -> list[str]:
        """The deaths of workers that should not have died."""

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The errors that were found."""

    def checks(self) -> list[Check]:
        """Returns the verdict, line by line."""

    def summary(self) -> Sequence[str]:
        """Returns operations, hits, torn, stale, foreign, deaths, peak over cap."""

    def as_json(self) -> dict[str, Any]:
        """Returns the same as numbers, for ``--json``."""


@dataclass
class Outcome:
    """The counts, measurements and findings of one run."""

    plan: Plan
    totals: dict[str, int] = field(default_factory=dict)
    peaks: Peaks = field(default_factory=Peaks)
    gets: Latencies = field(default_factory=Latencies)
    puts: Latencies = field(default_factory=Latencies)
    #: The deaths of workers that should not have died.
    deaths: list[str] = field(default_factory=list)
    kills: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    #: The checks that only some scenarios have.
    extra_checks: list[Check] = field(default_factory=list)
    daemon: dict[str, Any] | None = None
    seconds: float = 0.0
    #: The bytes of all keys together, if known.
    working_set_bytes: int | None = None
    #: Whether the recorded histories are those of registers.
    histories: Judged | None = None
    #: The outcomes of the rounds, if the run has several.
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.plan.scenario

    @property
    def title(self) -> str:
        plan = self.plan
        return f"{plan.scenario}: {plan.processes} processes, {self.seconds:.1f} s, seed {plan.seed}"

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks())

    def checks(self) -> list[Check]:
        checks = [
            *self._counts(),
            *self._reads(),
            *self._histories(),
            *self._bytes(),
            *self._times(),
            *self.extra_checks,
        ]
        excused = self.plan.excused
        return [replace(check, must="", ok=True) if check.name in excused else check for check in checks]

    def _counts(self) -> list[Check]:
        total = self.totals
        lines = [
            some("operations", total["operations"]),
            some("hits", total["hits"]),
            Check("misses", _number(total["misses"])),
            some("puts", total["puts"]),
        ]
        optional = ("compiles", "launches", "deletes")
        return lines + [Check(name, _number(total[name])) for name in optional if total[name]]

    def _reads(self) -> list[Check]:
        return [
            *(zero(name, self.totals[name]) for name in _WRONG),
            zero("worker deaths", len(self.deaths)),
            Check("dropped writes", _number(self.totals["dropped"])),
            zero("dropped, older value kept", self.totals["kept_older"]),
            Check("evictions by writers", _number(self.totals["evictions"])),
            Check("digest failures (misses)", _number(self.totals["digest_failures"])),
        ]

    def _histories(self) -> list[Check]:
        judged = self.histories
        if judged is None:
            return []
        keys = judged.ok + len(judged.illegal) + len(judged.unknown)
        return [
            Check("histories", f"{_number(keys)} keys, {_number(judged.operations)} operations", "> 0", keys > 0),
            zero("illegal histories", len(judged.illegal)),
            zero("undecided histories", len(judged.unknown)),
            *self._evictions(),
            *self._hot_keys(judged),
            *self._waits(),
        ]

    def _evictions(self) -> list[Check]:
        """Returns the check that no entry in use is evicted, except for uses within microseconds of the removal."""
        found, all_ = self.totals["evicted_in_use"], self.totals["evictions"]
        if not all_:
            return []
        must = max(_FEW, all_ // 50)
        return [Check("evicted though in use", f"{found:,} of {all_:,}", f"<= {must:,}", found <= must)]

    def _hot_keys(self, judged: Judged) -> list[Check]:
        """Returns the check that keys which are read all the time stay; on a busy machine one may be evicted once."""
        hot = self.plan.extra.get("hot_keys", 0)
        gone = sum(judged.removals.get(key, 0) for key in range(hot))
        return [Check("hot keys evicted", f"{gone} times", f"< {hot}", gone < hot)] if hot else []

    def _waits(self) -> list[Check]:
        most = self.plan.extra.get("longest_wait_seconds")
        longest = self.totals["longest_wait_us"] / 1e6
        return [Check("longest wait for nobody", f"{longest:.2f} s", f"< {most:g} s", longest < most)] if most else []

    def _bytes(self) -> list[Check]:
        cap, peaks = self.plan.max_size_bytes, self.peaks
        lines = [
            Check("peak over cap", _ratio(peaks.disk_bytes, cap), "<= 1", peaks.disk_bytes <= cap),
            Check("final over cap", _ratio(peaks.final_bytes, cap), "<= 1", peaks.final_bytes <= cap),
            Check("bytes unaccounted for", _number(peaks.unaccounted_bytes), "0", peaks.unaccounted_bytes <= 0),
            Check("samples with writers stopped", _number(peaks.samples)),
        ]
        if self.working_set_bytes is not None:
            lines.append(Check("working set over cap", _ratio(self.working_set_bytes, cap)))
        if peaks.statvfs_bytes is not None:
            # Counted in whole blocks. Only scenarios whose values fill their blocks demand that this is under the cap.
            lines.insert(2, Check("peak over cap, by statvfs", _ratio(peaks.statvfs_bytes, cap)))
        return lines

    def _times(self) -> list[Check]:
        return [
            Check("hit p50 / p99", _pair(self.gets)),
            Check("put p50 / p99", _pair(self.puts)),
        ]

    def summary(self) -> Sequence[str]:
        counts = [self.totals[name] for name in ("operations", "hits", *_WRONG)]
        peak = f"{self.peaks.disk_bytes / self.plan.max_size_bytes:.3f}"
        return [*(f"{count:,}" for count in counts), str(len(self.deaths)), peak]

    def as_json(self) -> dict[str, Any]:
        peaks = self.peaks
        return {
            "scenario": self.plan.scenario,
            "ok": self.ok,
            "processes": self.plan.processes,
            "seed": self.plan.seed,
            "seconds": round(self.seconds, 3),
            "cap_bytes": self.plan.max_size_bytes,
            **{name: value for name, value in self.totals.items() if name not in ("ready", "finished")},
            "worker_deaths": self.deaths,
            "kills": self.kills,
            "peak_bytes": peaks.disk_bytes,
            "peak_statvfs_bytes": peaks.statvfs_bytes,
            "final_bytes": peaks.final_bytes,
            "unaccounted_bytes": peaks.unaccounted_bytes,
            "samples": peaks.samples,
            "working_set_bytes": self.working_set_bytes,
            "hit_us": _percentiles(self.gets),
            "put_us": _percentiles(self.puts),
            "histories": self.histories and self.histories.as_json(),
            "daemon": self.daemon,
            "rounds": self.rounds,
            "findings": self.findings,
            "checks": [vars(check) for check in self.checks()],
        }


_WRONG = ("torn", "stale", "foreign")


def _number(value: int) -> str:
    return f"{value:,}"


def _ratio(value: int, cap: int) -> str:
    return f"{value / cap:.3f} ({value:,} of {cap:,} bytes)"


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {"p50": latencies.percentile_us(50), "p99": latencies.percentile_us(99)}


def _pair(latencies: Latencies) -> str:
    median, tail = latencies.percentile_us(50), latencies.percentile_us(99)
    return "none" if median is None or tail is None else f"{median:,.1f} / {tail:,.1f} us"


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
    #: Whether each row ends with its verdict; if not, the cells show what is wrong.
    judges_rows: bool = True


@dataclass
class Tabled:
    """An outcome that is reported like that of a scenario, with tables."""

    name: str
    title: str
    lines: Sequence[Check]
    #: The numbers for ``--json``, in addition to name, verdict and checks.
    numbers: Mapping[str, Any]
    #: The number of operations, and further cells of a scenario's summary.
    counts: Sequence[str]
    grids: Sequence[Grid] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines)

    def checks(self) -> list[Check]:
        return list(self.lines)

    def summary(self) -> Sequence[str]:
        """Returns as many cells as for a scenario."""
        return [*self.counts, *[""] * (_SUMMARY_CELLS - len(self.counts))]

    def as_json(self) -> dict[str, Any]:
        checks = [vars(line) for line in self.lines]
        return {"scenario": self.name, "ok": self.ok, **self.numbers, "findings": self.findings, "checks": checks}
