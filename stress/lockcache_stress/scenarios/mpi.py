"""The processes are the ranks of one MPI job under a real ``mpiexec``: they begin together and want the same keys.

Proves what the other scenarios prove for processes of which none is another's child or parent.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario
from lockcache_stress.run import why_no_mpi
from lockcache_stress.scenarios.same_key import make_step

__all__ = ["SCENARIO"]

SCENARIO = Scenario(
    "mpi",
    "ranks under mpiexec write and read one key",
    make_step,
    processes=4,
    max_size_bytes=8 * MIB,
    keys=1,
    samples=False,
    why_not=why_no_mpi,
    extra={"mpi": True},
)
