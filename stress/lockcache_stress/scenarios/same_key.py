"""All processes write and read one key: the tightest race between publishing and reading, and of publishers.

Proves for one name invariant 1 (a hit is whole) and invariant 2 (last write wins): a read gives one whole value, never
one older than a write that had returned.
"""

from __future__ import annotations

from dataclasses import replace

from lockcache_stress.judge import SMALLEST_BYTES
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker, why_no_mpi

_SIZES = (SMALLEST_BYTES, 4096, 65_536, 300_000)


def make_step(worker: Worker) -> Step:
    """Returns the step: half writes, of very different sizes; half reads; now and then a delete."""
    return lambda: worker.use(0, _SIZES, writes=0.48, deletes=0.02)


SCENARIO = Scenario(
    "same-key", "every process writes and reads one key", make_step, processes=8, max_size_bytes=8 * MIB, keys=1
)

#: Payload and record are two renames then, and one unit: the same proofs where there are no extended attributes.
RECORD_FILES = replace(
    SCENARIO,
    name="record-files",
    help="every process writes and reads one key, its record in a file of its own",
    extra={"cache": {"record_files": True}},
)

#: The processes are the ranks of one MPI job under a real ``mpiexec``, of which none is another's child or parent.
MPI = replace(
    SCENARIO,
    name="mpi",
    help="ranks under mpiexec write and read one key",
    processes=4,
    samples=False,
    why_not=why_no_mpi,
    extra={"mpi": True},
)
