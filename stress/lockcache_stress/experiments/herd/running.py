"""Runs one herd: references first, then all processes through both phases, then a look at what is left.

Whatever happens (Ctrl-C, a member that dies or hangs, an error here), no process is left when :func:`run_herd` ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from lockcache import FileStreamProgramCache
from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.herd.member import Compiled, run_member, run_reference
from lockcache_stress.experiments.herd.outcome import HerdOutcome, Phase
from lockcache_stress.experiments.herd.plan import PHASES, HerdOptions, HerdPlan
from lockcache_stress.experiments.herd.sources import write_headers
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.run import Group
from lockcache_stress.trouble import open_workspace

__all__ = ["run_herd"]


def run_herd(options: HerdOptions, show: Callable[[str, float, str], None]) -> HerdOutcome:
    """Run it. Raises :class:`UnusableError` where there is no NVRTC."""
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
        outcome.lease_files = _count_files(os.path.join(plan.directory, "lockcache", "leases"))
        outcome.staged_files = _count_files(os.path.join(plan.directory, "tmp"))
        show("herd", 1.0, f"{outcome.phases[0].compiles} compiles")
        return outcome


def _add_phase(plan: HerdPlan, herd: Group, outcome: HerdOutcome, references: list[dict[int, Compiled]]) -> None:
    number = len(outcome.phases)
    herd.gather()  # all are ready, none reads a header
    write_headers(plan, number)
    began = time.monotonic()
    herd.open_gate(number)
    answers = herd.gather()
    seconds = time.monotonic() - began
    compiles = _count_lines(plan.compiled(number))
    outdated = references[0] if number == 1 else {}
    outcome.phases.append(Phase(compiles, answers, seconds, references[min(number, 1)], outdated))


def _references(plan: HerdPlan, outcome: HerdOutcome) -> list[dict[int, Compiled]]:
    """Every kernel as it must be in each phase, compiled by one process with no cache.

    The headers are left as they are at first.
    """
    found: list[dict[int, Compiled]] = []
    with Group(run_reference, (plan,), 1, len(PHASES)) as alone:
        for phase in range(len(PHASES)):
            write_headers(plan, phase)
            [answer] = alone.run_phase(phase)
            found.append(answer.compiled)
            outcome.alone_seconds = outcome.alone_seconds or answer.seconds
    write_headers(plan, 0)
    return found


def _count_files(path: str) -> int:
    return sum(len(files) for _, _, files in os.walk(path))


def _count_lines(path: str) -> int:
    try:
        with open(path) as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0
