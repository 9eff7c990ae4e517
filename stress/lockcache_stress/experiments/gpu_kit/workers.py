"""Rows ``nvrtc`` and ``cold-start``: the scenario and the herd that are there, with the settings of the kit.

``nvrtc`` has workers that compile, hit, load, launch and check, under a cap with a daemon. ``cold-start`` says what a
start takes with and without the cache, and how much is compiled.
"""

from __future__ import annotations

from typing import Final

from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.experiments.herd import HerdOptions, run_herd
from lockcache_stress.run import Options, run_nvrtc, some
from lockcache_stress.scenarios import NVRTC_STEP
from lockcache_stress.trouble import CACHE_FAULTS, HERD_FAULTS

__all__ = ["run_cold_start", "run_workers"]

# As `lockcache-stress nvrtc` has it: 40 kernels for four architectures under 24 MB, two thirds of what they take.
_MOST_KERNELS: Final = 40
_FEWEST_KERNELS: Final = 1
_CAP_BYTES_EACH: Final = 600_000
_HERD_KERNELS: Final = 8
# Of the herd's kernels two cores compile some ten a second; a short run takes few.
_HERD_KERNELS_PER_SECOND: Final = 2


def run_workers(kit: Kit) -> Found:
    """Runs the row ``nvrtc``."""
    given = kit.options
    kernels = max(_FEWEST_KERNELS, min(_MOST_KERNELS, int(kit.seconds)))
    options = Options(
        processes=given.processes,
        seconds=kit.seconds,
        max_size_bytes=kernels * _CAP_BYTES_EACH,
        seed=given.seed,
        plant=given.plant if given.plant in CACHE_FAULTS else None,
    )
    outcome = run_nvrtc(NVRTC_STEP, options, kernels=kernels, gpu="auto", with_daemon=True, show=kit.show)
    total = outcome.totals
    launches = total["launches"] if kit.gpu_arch else None
    if launches is not None:
        # A launch that computes something else ends its worker: a death.
        outcome.extra_checks.append(some("launches on the GPU", launches))
    peak = outcome.peaks.disk_bytes / options.max_size_bytes
    did = f"{kernels} kernels, {total['hits']:,} hits, peak over cap {peak:.2f}"
    wrong = total["torn"] + total["stale"] + total["foreign"] + len(outcome.deaths)
    return Found(did, outcome, total["compiles"], launches, wrong, kit.notes)


def run_cold_start(kit: Kit) -> Found:
    """Runs the row ``cold-start``; it takes as long as it takes."""
    given = kit.options
    kernels = max(1, min(_HERD_KERNELS, int(kit.seconds * _HERD_KERNELS_PER_SECOND)))
    plant = given.plant if given.plant in HERD_FAULTS else None
    outcome = run_herd(HerdOptions(given.processes, kernels, given.seed, plant=plant, uncached=True), kit.show)
    cold, uncached = outcome.phases[0], outcome.phases[-1]
    did = f"{given.processes} processes x {kernels} kernels: "
    did += f"with the cache {cold.seconds:.2f} s, {cold.compiles} compiled"
    did += f"; without {uncached.seconds:.2f} s, {uncached.compiles} compiled"
    compiles = sum(phase.compiles for phase in outcome.phases)
    wrong = sum(phase.wrong + phase.stale + phase.wrong_mappings for phase in outcome.phases)
    return Found(did, outcome, compiles, None, wrong + len(outcome.deaths), ["nothing is launched here"])
