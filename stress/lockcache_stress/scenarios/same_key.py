# SPDX-License-Identifier: Apache-2.0
"""All processes write and read one key: the tightest race of writers with readers, and with each other.

Proves for one name invariant 1 (a hit is whole) and invariant 2 (last write wins): a read returns one whole value,
never a value that is older than a write that had returned.
"""

from __future__ import annotations

from dataclasses import replace

from lockcache_stress.judge import SMALLEST_BYTES
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker, why_no_mpi

_SIZES = (SMALLEST_BYTES, 4096, 65_536, 300_000)


def make_step(worker: Worker) -> Step:
    """Returns the step: half of the calls write values of very different sizes, half read, and a few delete."""
    return lambda: worker.use(0, _SIZES, writes=0.48, deletes=0.02)


SCENARIO = Scenario(
    "same-key", "every process writes and reads one key", make_step, processes=8, max_size_bytes=8 * MIB, keys=1
)

#: Where there are no extended attributes, two renames publish payload and record, which have to stay one unit.
RECORD_FILES = replace(
    SCENARIO,
    name="record-files",
    help="every process writes and reads one key, its record in a file of its own",
    extra={"cache": {"record_files": True}},
)

#: The processes are the ranks of one MPI job under a real ``mpiexec``: no process is the child of another.
MPI = replace(
    SCENARIO,
    name="mpi",
    help="ranks under mpiexec write and read one key",
    processes=4,
    samples=False,
    why_not=why_no_mpi,
    extra={"mpi": True},
)
