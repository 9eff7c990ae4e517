# SPDX-License-Identifier: Apache-2.0
"""Rows ``cupy``, ``triton`` and ``jax``: a framework's own directory under a small cap that lockcache-daemon keeps.

The directory is filled first, without a daemon; the cap is half of what the kernels take. Then several processes use
the kernels while the daemon keeps the directory. Frameworks take no locks, so files that were written since the daemon
last looked, or are too new to be evicted (``--settle``), may exceed the cap: the row reports the peak. It judges that
the directory is under its cap when the processes are done, and that no kernel computed a wrong result.

Rows ``cupy-shared``, ``triton-shared``, ``jax-shared``, ``numba-cuda-shared``, ``cute-shared`` and ``cutile-shared``: a
framework's kernels on lockcache, by its adapter. All processes begin together with an empty directory, and ask for all
kernels, each in an order of its own: every kernel must be compiled once by all processes together. Then the processes
drop what they have in memory and ask again, and no kernel may be compiled.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

from lockcache_stress.experiments.gpu_kit.frameworks.kernels import (
    KERNELS,
    ON_GPU,
    CupyKernels,
    CuteKernels,
    CutileKernels,
    Framework,
    JaxKernels,
    NumbaKernels,
    TritonKernels,
)
from lockcache_stress.experiments.gpu_kit.frameworks.user import Use, Used, run_shared_user, run_user
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit, NotRunError, measured
from lockcache_stress.processes import Group, wait_until
from lockcache_stress.run import Check, DaemonProcess, equal, some, tree_bytes, zero
from lockcache_stress.trouble import open_workspace

#: The frameworks, in the order in which their rows run. CuPy asks whether an entry is there, then opens it, and raises
#: an error if the entry was removed in between.
FRAMEWORKS: Final = (
    Framework("CuPy", "files", ("cupy",), (12, 0), True, CupyKernels, ("FileNotFoundError",)),
    Framework("Triton", "triton", ("triton", "torch"), (3, 0), True, TritonKernels),
    Framework("JAX", "files", ("jax", "jaxlib"), (0, 5), False, JaxKernels),
)

#: The frameworks that have an adapter in lockcache.integrations. A daemon cannot keep numba's own directory, in which
#: an index and its files belong together. Inductor has a row of its own, with programs of its own.
SHARED: Final = (
    *FRAMEWORKS,
    Framework("numba-cuda", "", ("numba", "numba_cuda"), (0, 20), True, NumbaKernels),
    Framework("CuTe", "", ("cutlass", "torch"), (4, 8), True, CuteKernels),
    Framework("cuTile", "", ("cuda.tile", "torch"), (1, 7), True, CutileKernels),
)

# More processes take long to start, and prove no more.
_MOST_PROCESSES: Final = 8
# Long enough for a kernel that is written file by file on a busy machine. Entries that were used within this time stay,
# so that the peak may be twice the cap.
_SETTLE: Final = "1s"
_OWN_FOLDER: Final = "lockcache"
_FILL, _USE = 0, 1
_COLD, _WARM = 0, 1
# Long enough for a compiler that compiles every kernel.
_PATIENCE_SECONDS: Final = 180.0
# Long enough for entries that settle for a second, are kept for readers for two, and are evicted at the next tick.
_LAST_SWEEP_SECONDS: Final = 15.0


class _Watch:
    """The bytes of a framework's directory, without the daemon's own files there."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.peak_bytes = 0

    def measure(self) -> int:
        """Returns the bytes that are there now."""
        own = tree_bytes(os.path.join(self._directory, _OWN_FOLDER))
        found = tree_bytes(self._directory) - own
        self.peak_bytes = max(self.peak_bytes, found)
        return found

    def settle(self, cap_bytes: int) -> int:
        """Returns the bytes that are left after the daemon had time to evict down to the cap."""
        wait_until(lambda: self.measure() <= cap_bytes, _LAST_SWEEP_SECONDS, every_seconds=0.05)
        return self.measure()


def run_framework(kit: Kit, framework: Framework) -> Found:
    """Run the row of one framework. Raises :class:`NotRunError` if it cannot run a kernel here."""
    processes = min(kit.options.processes, _MOST_PROCESSES)
    with open_workspace(None) as space:
        directory = os.path.join(space.control, framework.row)
        os.mkdir(directory, 0o700)
        use, watch = Use(framework, directory, kit.seconds, kit.options.seed), _Watch(directory)
        with Group(run_user, (use,), processes, 2, kit.seconds + _PATIENCE_SECONDS) as group:
            _check_filled(framework, group.run_phase(_FILL))
            group.gather()
            filled_bytes = watch.measure()
            cap_bytes = max(1, filled_bytes // 2)
            daemon = DaemonProcess(directory, space.control, cap_bytes, ["--settle", _SETTLE], layout=framework.layout)
            with daemon:
                watch.settle(cap_bytes)
                watch.peak_bytes = 0  # filling took twice the cap
                group.open_gate(_USE)
                used: list[Used] = group.gather(watch.measure)
                final_bytes = watch.settle(cap_bytes)
        bytes_ = {"cap": cap_bytes, "filled": filled_bytes, "peak": watch.peak_bytes, "final": final_bytes}
        return _find(framework, kit, used, bytes_, daemon, group.deaths)


def _check_runs(framework: Framework, phase: Sequence[Used]) -> None:
    for each in phase:
        if each.error:
            raise NotRunError(f"{framework.name} could not be used: {each.error}")


def _check_filled(framework: Framework, filled: Sequence[Used]) -> None:
    _check_runs(framework, filled)
    for each in filled:
        if each.wrong:
            raise NotRunError(f"{framework.name} computed wrong numbers before any daemon ran: {each.findings[0]}")


def _find(
    framework: Framework,
    kit: Kit,
    used: Sequence[Used],
    bytes_: dict[str, int],
    daemon: DaemonProcess,
    deaths: list[str],
) -> Found:
    uses, wrong = sum(each.uses for each in used), sum(each.wrong for each in used)
    raised = sum((each.raised for each in used), Counter())
    unexpected = sum(count for name, count in raised.items() if name not in framework.may_raise)
    peak, final = (bytes_[name] / bytes_["cap"] for name in ("peak", "final"))
    place = used[0].place if used else "nothing"
    lines = [
        some("uses", uses),
        Check("place", place),
        zero("wrong results", wrong),
        zero("errors raised", unexpected),
        Check("errors that it is known for", f"{sum(raised.values()) - unexpected:,}"),
        *_under_the_daemon(bytes_, daemon),
    ]
    findings = [{"error": text} for each in used if each.wrong or unexpected for text in each.findings]
    outcome = measured(
        framework.row,
        f"{framework.row}: {len(used)} processes, {KERNELS} kernels, seed {kit.options.seed}",
        lines,
        {"uses": uses, "raised": dict(raised), "bytes": bytes_, "daemon": daemon.result},
        operations=uses,
        wrong=wrong,
        peak=f"{peak:.3f}",
        deaths=deaths,
        findings=[*findings, *daemon.result["complaints"]],
    )
    did = f"{uses:,} uses on {place}, {daemon.result['evicted_entries']:,} evictions, "
    did += f"peak over cap {peak:.2f}, at the end {final:.2f}"
    notes = [
        "its compiles are not counted",
        *_notes(place),
        *(f"raised {count:,} {name}" for name, count in raised.items()),
    ]
    return Found(did, outcome, None, uses if place == ON_GPU else None, wrong, notes)


def _under_the_daemon(bytes_: dict[str, int], daemon: DaemonProcess) -> list[Check]:
    evicted, complaints = daemon.result["evicted_entries"], daemon.result["complaints"]
    cap, peak, final = bytes_["cap"], bytes_["peak"], bytes_["final"]
    return [
        some("evictions by the daemon", evicted),
        Check("peak over cap", f"{peak / cap:.2f} ({peak:,} of {cap:,} bytes)"),
        Check("final over cap", f"{final / cap:.2f}", "<= 1", final <= cap),
        zero("daemon errors and warnings", len(complaints)),
    ]


def _notes(place: str) -> list[str]:
    return [] if place == ON_GPU else ["nothing was launched on a GPU"]


def run_shared(kit: Kit, framework: Framework) -> Found:
    """Run the row of one framework. Raises :class:`NotRunError` if it cannot run a kernel here."""
    processes = min(kit.options.processes, _MOST_PROCESSES)
    with open_workspace(None) as space:
        use = Use(framework, space.cache, kit.seconds, kit.options.seed)
        with Group(run_shared_user, (use,), processes, 2, kit.seconds + _PATIENCE_SECONDS) as group:
            cold, warm = (group.run_phase(phase) for phase in (_COLD, _WARM))
    _check_runs(framework, [*cold, *warm])
    return _find_shared(kit, framework, cold, warm, group.deaths)


def _find_shared(
    kit: Kit, framework: Framework, cold: Sequence[Used], warm: Sequence[Used], deaths: list[str]
) -> Found:
    both = [*cold, *warm]
    wrong, uses = sum(each.wrong for each in both), sum(each.uses for each in both)
    compiled, again = sum(each.compiled for each in cold), sum(each.compiled for each in warm)
    programs = max((each.entries for each in warm), default=0)
    hits = sum(each.hits for each in both)
    place = cold[0].place if cold else "nothing"
    lines = [
        some("programs in the directory", programs),
        equal("compiled, by all processes", compiled, programs),
        zero("compiled when all was there", again),
        some("hits", hits),
        Check("place", place),
        zero("wrong results", wrong),
    ]
    name = f"{framework.row}-shared"
    outcome = measured(
        name,
        f"{name}: {len(cold)} processes, {KERNELS} kernels, seed {kit.options.seed}",
        lines,
        {"uses": uses, "compiled": compiled, "programs": programs, "again": again},
        operations=uses,
        hits=hits,
        wrong=wrong,
        deaths=deaths,
        findings=[{"error": text} for each in both for text in each.findings],
    )
    did = f"{len(cold)} processes, {programs} programs: compiled {compiled}, then {again}; {uses:,} uses on {place}"
    return Found(did, outcome, compiled + again, uses if place == ON_GPU else None, wrong, _notes(place))
