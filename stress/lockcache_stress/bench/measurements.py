# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress bench``: measures this cache next to others, in one run, with bars that must hold."""

from __future__ import annotations

import compileall
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import lockcache
from lockcache_stress.bench import (
    boot,
    compile_server,
    contention,
    curves,
    daemon,
    daemon_million,
    first_hit,
    lookups,
    puts,
    robustness,
    startup,
    syscalls,
)
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.daemon import Daemons
from lockcache_stress.run import Check
from lockcache_stress.trouble import open_workspace

_NOT_MEASURED: Final = "not measured"

#: The measurements by their names on the command line, in the order in which they run.
MEASUREMENTS: Final[dict[str, Callable[[Bench], list[Line]]]] = {
    "hit": lookups.measure_hit,
    "program-hit": lookups.measure_program_hit,
    "first-hit": first_hit.measure,
    "miss": lookups.measure_miss,
    "put": puts.measure_put,
    "put-full": puts.measure_put_full,
    "open": startup.measure_opening,
    "overshoot": contention.measure_overshoot,
    "contention": contention.measure_contention,
    "herd": contention.measure_herd,
    "boot": boot.measure,
    "import": startup.measure_import,
    "damage": robustness.measure_damage,
    "syscalls": syscalls.measure,
    "daemon-idle": daemon.measure_idle,
    "daemon-sweep": daemon.measure_sweep,
    "daemon-million": daemon_million.measure,
    "compile-server": compile_server.measure,
    "curve-entries": curves.measure_entries,
    "curve-processes": curves.measure_processes,
}
#: The measurements that ``--curve`` asks for.
CURVES: Final = ("curve-entries", "curve-processes")
#: The measurements that are run only on request, because they take long.
ON_REQUEST: Final = (*CURVES, "compile-server")


def run_bench(
    names: Sequence[str],
    directory: str | None,
    *,
    quick: bool,
    show: Callable[[str, float, str], None],
    keep: str | None = None,
    with_daemon: bool = False,
) -> list[Line]:
    """Run these measurements under ``directory`` (temporary: the default), and remove what they made.

    Directories that take long to make stay under ``keep``. ``with_daemon``: a ``lockcache-daemon`` runs on every
    directory of lockcache's meanwhile (except for the curves, and for measurements of the daemon itself).
    """
    lines: list[Line] = []
    # As installers do. Else an environment that writes no bytecode compiles what was changed at each start.
    compileall.compile_dir(os.path.dirname(lockcache.__file__), quiet=2)
    for name in names:
        with open_workspace(None, parent=directory) as space:
            with Daemons(space.control) as daemons:
                bench = Bench(
                    space.cache,
                    quick,
                    partial(show, name),
                    keep,
                    daemons if with_daemon else None,
                    may_mount=directory is None,
                )
                found = MEASUREMENTS[name](bench)
            if daemons.attended:
                found.append(daemons.line(name))
        # A missed bar of time shows the load of the machine, which may be the reason. The load is read before the next
        # measurement adds to it.
        load = os.getloadavg()[0]
        lines += [replace(line, load=load) if line.is_time and not line.ok else line for line in found]
        show(name, 1.0, "")
    return lines


@dataclass
class BenchOutcome:
    """The lines that were measured, and the machine."""

    lines: Sequence[Line]
    machine: Mapping[str, str]
    quick: bool = False
    name: str = "bench"
    deaths: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def title(self) -> str:
        few = ", few repetitions: to see it run, not to believe the numbers" if self.quick else ""
        return f"bench: {len(self.lines)} lines{few}"

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines)

    def checks(self) -> list[Check]:
        """Returns a check for each line. The check of a bar shows the bar's ratio, where it has one."""
        return [Check(line.name, _value(line), line.bar, line.ok) for line in self.lines]

    def summary(self) -> Sequence[str]:
        """Returns as many cells as for a scenario: the number of lines, the others empty."""
        return [f"{len(self.lines):,}", *[""] * 6]

    def as_json(self) -> dict[str, Any]:
        lines = [vars(line) for line in self.lines]
        return {"machine": dict(self.machine), "quick": self.quick, "ok": self.ok, "lines": lines}


def _value(line: Line) -> str:
    if line.skipped:
        return f"{_NOT_MEASURED}: {line.skipped}"
    busy = "" if line.load is None else f", at a load of {line.load:.1f}"
    return f"{line.ours} ({line.ratio}){busy}" if line.ratio else f"{line.ours}{busy}"
