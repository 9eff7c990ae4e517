# SPDX-License-Identifier: Apache-2.0
"""One rank of the job: ``python -m lockcache_stress.experiments.mpi_rank PLAN PHASE``.

In the phases ``cold`` and ``warm`` a rank compiles every kernel, and each rank begins with another one. In phases whose
name begins with ``killed`` the first rank with the turn waits in ``compute`` to be killed; the rank that takes over
states when it begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import glob
from typing import Any

from lockcache import FileStreamProgramCache
from lockcache_stress.gpu import Slot, compile_cubin, make_slots, program_key
from lockcache_stress.processes import die_with_parent

#: The first word of phases in which a rank is killed. The other ranks must not end with it, nor be ended by its proxy.
KILLED = "killed"


def main() -> None:
    """Run a rank from start to end."""
    from mpi4py import MPI

    with open(sys.argv[1]) as file:
        plan = json.load(file)
    phase, rank = sys.argv[2], MPI.COMM_WORLD.Get_rank()
    if not phase.startswith(KILLED):
        die_with_parent()
    with FileStreamProgramCache(plan["directory"]) as cache:
        MPI.COMM_WORLD.Barrier()
        if phase.startswith(KILLED):
            say(plan, f"{phase}-asks-{rank}", pid=os.getpid())
            cache.get_or_compute(phase, lambda: hold(plan, phase))
        else:
            answers = compile_all(cache, plan, phase, rank)
            say(plan, f"{phase}-answer-{rank}", host=socket.gethostname(), digests=answers)
    if phase.startswith(KILLED):
        # Ending MPI would wait for ranks that are dead by now.
        os._exit(0)


def compile_all(cache: FileStreamProgramCache, plan: dict[str, object], phase: str, rank: int) -> list[str]:
    """Get every kernel, beginning with another one than other ranks. Returns the digests of their code."""
    slots = make_slots(int(str(plan["kernels"])), int(str(plan["seed"])), ("sm_90",))
    digests = [""] * len(slots)
    for step in range(len(slots)):
        number = (step + rank) % len(slots)
        code = cache.get_or_compute(program_key(slots[number], b""), _compiling(plan, phase, rank, slots[number]))
        digests[number] = hashlib.sha256(code).hexdigest()
    return digests


def _compiling(plan: dict[str, object], phase: str, rank: int, slot: Slot) -> Callable[[], bytes]:
    def compute() -> bytes:
        say(plan, f"{phase}-compile-{rank}-{time.monotonic_ns()}")
        return compile_cubin(slot, 0)

    return compute


def hold(plan: dict[str, object], phase: str) -> bytes:
    """Compute a value: the first rank that does waits here to be killed, and the next states when it began."""
    began_ns = time.monotonic_ns()
    if os.path.exists(os.path.join(str(plan["control"]), f"{phase}-holds.json")):
        say(plan, f"{phase}-took", began_ns=began_ns)
        return b"computed"
    say(plan, f"{phase}-holds", pid=os.getpid())
    while True:
        signal.pause()


def say(plan: dict[str, object], name: str, **said: object) -> None:
    """Leave a file for the process that started this one; the file appears whole."""
    path = os.path.join(str(plan["control"]), name)
    with open(f"{path}.new", "w") as file:
        json.dump(said, file)
    os.replace(f"{path}.new", f"{path}.json")


def said(control: str, pattern: str) -> list[dict[str, Any]]:
    """Returns the contents of the files that processes left in ``control`` under names that match ``pattern``."""
    found = []
    for path in glob(os.path.join(control, f"{pattern}.json")):
        with open(path) as file:
            found.append(json.load(file))
    return found


def differing(answers: Sequence[dict[str, Any]]) -> int:
    """Returns how many programs differ from those that other processes got."""
    return sum(len(set(same)) - 1 for same in zip(*(each["digests"] for each in answers), strict=True))


def kill_all(control: str, pattern: str) -> None:
    """SIGKILL the processes that left such files, as far as they are still there."""
    for each in said(control, pattern):
        with suppress(ProcessLookupError):
            os.kill(each["pid"], signal.SIGKILL)


if __name__ == "__main__":
    main()
