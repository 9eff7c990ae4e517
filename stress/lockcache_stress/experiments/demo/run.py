# SPDX-License-Identifier: Apache-2.0
"""Runs a demonstration: four starts, then requests under a cap that a daemon keeps."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Final

from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.demo.member import Answer, DemoPlan, run_requests, run_start
from lockcache_stress.experiments.demo.outcome import DemoOutcome, Kept, Start
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import Group
from lockcache_stress.run import DaemonProcess, Show, bytes_on_disk
from lockcache_stress.trouble import Workspace, open_workspace

#: Each in processes of its own. The second with the cache finds what the first one left, as on the next start.
STARTS: Final = (
    ("without a cache, first start", False),
    ("without a cache, second start", False),
    ("with lockcache, first start", True),
    ("with lockcache, second start", True),
)
# Of what all kernels take: the most wanted stay, and the others make room for one another.
_SHARE: Final = 0.75


def run_demo(plan: DemoPlan, show: Show) -> DemoOutcome:
    """Run all parts. Raises :class:`UnusableError` where there is no NVRTC."""
    if not has_nvrtc():
        raise UnusableError(f"the demonstration needs cuda.core and NVRTC: {how_to_install('cuda')}")
    with open_workspace(None) as space:
        plan = replace(plan, directory=space.cache)
        outcome = DemoOutcome(plan)
        for number, (name, is_cached) in enumerate(STARTS):
            show("demo", number / (len(STARTS) + 1), name)
            answers = _run(plan, partial(run_start, plan, is_cached))
            outcome.references = outcome.references or dict(answers[0].got)
            outcome.starts.append(Start(name, is_cached, answers))
        show("demo", len(STARTS) / (len(STARTS) + 1), "under a cap, with a daemon")
        outcome.kept.append(_run_under_a_cap(plan, space))
        show("demo", 1.0, "done")
        return outcome


def _run(plan: DemoPlan, target: partial[None], sample: object = None) -> list[Answer]:
    """Returns the answers of all members, in the order of their numbers."""
    meanwhile = sample if callable(sample) else None
    with Group(target.func, target.args, plan.processes, 1, needs_all=True) as group:
        answers: list[Answer] = group.run_phase(0, meanwhile, 0.01)
    return sorted(answers, key=lambda answer: answer.process)


def _run_under_a_cap(plan: DemoPlan, space: Workspace) -> Kept:
    cap_bytes = int(_SHARE * bytes_on_disk(plan.directory))
    peaks: list[int] = []
    control = os.path.join(space.control, "daemon")
    os.mkdir(control)
    with DaemonProcess(plan.directory, control, cap_bytes) as daemon:
        answers = _run(plan, partial(run_requests, plan), lambda: peaks.append(bytes_on_disk(plan.directory)))
    by_programs = sum(answer.evictions for answer in answers)
    by_daemon = daemon.result["evicted_entries"]
    return Kept(answers, cap_bytes, max(peaks), len(peaks), by_programs, by_daemon, daemon.trouble())
