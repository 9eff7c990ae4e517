# SPDX-License-Identifier: Apache-2.0
"""The rows by name, in the order in which they run, and the run of them.

A later feature adds its row to :data:`ROWS`: a name, a weight, a function that takes a :class:`~.plan.Kit` and returns
a :class:`~.plan.Found`, and a function that says why the row cannot be run. This module has two rows itself. ``nvrtc``
is the scenario with the settings of the kit: workers compile, hit, load, launch and check under a cap, with a daemon.
``cold-start`` is the herd: the time of a start with and without the cache, and the number of compilations.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from lockcache_stress.experiments.gpu_kit.eviction import run_eviction
from lockcache_stress.experiments.gpu_kit.first_hit import run_first_hit
from lockcache_stress.experiments.gpu_kit.frameworks import (
    FRAMEWORKS,
    SHARED,
    run_framework,
    run_inductor,
    run_shared,
    why_no_inductor,
)
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit, KitOptions, NotRunError, Row, measured
from lockcache_stress.experiments.gpu_kit.symbols import run_linking, run_templates
from lockcache_stress.experiments.gpu_kit.timing import run_timing
from lockcache_stress.experiments.herd import run_herd
from lockcache_stress.experiments.herd_member import HerdOptions
from lockcache_stress.gpu import find_arch, why_no_cuda_core
from lockcache_stress.run import Options, Show, run_nvrtc, some
from lockcache_stress.scenarios import NVRTC_STEP
from lockcache_stress.trouble import CACHE_FAULTS, HERD_FAULTS

# As in `lockcache-stress nvrtc`: 40 kernels for four architectures under 24 MB, two thirds of what they take.
_MOST_KERNELS: Final = 40
_FEWEST_KERNELS: Final = 1
_CAP_BYTES_EACH: Final = 600_000
_HERD_KERNELS: Final = 8
# Two cores compile some ten kernels of the herd in a second, so a short run has few of them.
_HERD_KERNELS_PER_SECOND: Final = 2


def _needs_cuda_core(gpu_arch: str | None) -> str | None:
    return why_no_cuda_core()


def run_workers(kit: Kit) -> Found:
    """Run the row ``nvrtc``."""
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
        # A launch with a wrong result ends its worker, which counts as a death.
        outcome.extra_checks.append(some("launches on the GPU", launches))
    peak = outcome.peaks.disk_bytes / options.max_size_bytes
    did = f"{kernels} kernels, {total['hits']:,} hits, peak over cap {peak:.2f}"
    wrong = total["torn"] + total["stale"] + total["foreign"] + len(outcome.deaths)
    return Found(did, outcome, total["compiles"], launches, wrong, kit.notes)


def run_cold_start(kit: Kit) -> Found:
    """Run the row ``cold-start``, which has no limit of time."""
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


_SHARED: Final = "{}'s kernels on lockcache: each compiled once"
_HELP: Final = "{}'s own directory under lockcache-daemon while its kernels are launched"

#: The rows, by name.
ROWS: Final[dict[str, Row]] = {
    row.name: row
    for row in (
        Row("nvrtc", "workers compile, hit, load, launch, under a cap", 4, run_workers, _needs_cuda_core),
        Row("templates", "instances got by name from hits", 1, run_templates, _needs_cuda_core),
        Row("lto-ir", "LTO-IR linked from hits", 1, run_linking, _needs_cuda_core),
        Row("cold-start", "a start with and without the cache", 2, run_cold_start, _needs_cuda_core),
        Row("eviction", "modules stay loaded while all is evicted", 2, run_eviction, _needs_cuda_core),
        Row("timing", "hit, load, launch against compile", 2, run_timing, _needs_cuda_core),
        Row("first-hit", "the first hit of a process against compiling", 1, run_first_hit, _needs_cuda_core),
        *(
            Row(each.row, _HELP.format(each.name), 2, partial(run_framework, framework=each), each.why_not)
            for each in FRAMEWORKS
        ),
        *(
            Row(
                f"{each.row}-shared",
                _SHARED.format(each.name),
                1,
                partial(run_shared, framework=each),
                each.why_not,
            )
            for each in SHARED
        ),
        Row("inductor-shared", "torch.compile of a small GPT on new nodes", 3, run_inductor, why_no_inductor),
    )
}


def run_rows(options: KitOptions, skipped: list[tuple[str, str]], show: Show) -> Iterator[Found]:
    """Run one row after the other, sharing the time between those that can be run here.

    A row that cannot be run is added to ``skipped`` with the reason. A row that raises an error has failed, and the
    others go on, because time on a GPU is short.
    """
    gpu_arch = find_arch()
    chosen = [ROWS[name] for name in options.names or ROWS]
    reasons = [(row, row.why_not(gpu_arch)) for row in chosen]
    skipped += [(row.name, reason) for row, reason in reasons if reason is not None]
    possible = [row for row, reason in reasons if reason is None]
    run_began = time.monotonic()
    for number, row in enumerate(possible):
        show("gpu", number / len(possible), row.name)
        began = time.monotonic()
        kit = Kit(options, gpu_arch, _share(options, possible, number, began - run_began), show)
        try:
            found = row.run(kit)
        except NotRunError as error:
            skipped.append((row.name, str(error)))
            continue
        except Exception as error:  # noqa: BLE001  whatever it is: it is reported, and the rows behind it are run
            found = _broken(row, error)
        found.row, found.seconds = row.name, time.monotonic() - began
        yield found
    show("gpu", 1.0, "done")


def _share(options: KitOptions, rows: Sequence[Row], number: int, passed_seconds: float) -> float:
    """Returns the row's share of the remaining time, at least half of its share of all: to start takes time too."""
    weight = rows[number].weight
    left_seconds = options.seconds - passed_seconds
    fair = options.seconds * weight / sum(row.weight for row in rows)
    return max(fair / 2, left_seconds * weight / sum(row.weight for row in rows[number:]))


def _broken(row: Row, error: Exception) -> Found:
    text = "".join(traceback.format_exception(error, limit=-6))
    outcome = measured(row.name, f"{row.name}: broke", [], {}, findings=[{"error": text}])
    return Found(f"broke: {type(error).__name__}: {error}".partition("\n")[0], outcome)
