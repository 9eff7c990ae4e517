# SPDX-License-Identifier: Apache-2.0
"""The processes of one host: ``python -m lockcache_stress.experiments.remote.member PLAN PHASE HOST``.

The first process has the compiler and forks the others, so that each has a client of the server of its own. They report
that they are ready, wait for the file ``PHASE-go``, and then compile all kernels (``cold``), or hold one key until they
are killed (``killed``), or want key after key while the server is restarted (``restarts``).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from typing import Any

from lockcache import FileStreamProgramCache, RemoteProgramCache, TieredProgramCache
from lockcache_stress.experiments.mpi_rank import KILLED, compile_all, hold, say
from lockcache_stress.gpu import compile_cubin, make_slots
from lockcache_stress.processes import die_with_parent, wait_until

_READY_SECONDS = 300.0
# A value repeats its key so often, so that other bytes are noticed.
_REPEATED = 500


def main() -> None:
    """Run a host from start to end. The exit code is the highest of its processes."""
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    phase, host = sys.argv[2], int(sys.argv[3])
    die_with_parent()
    os.environ["LOCKCACHE_REMOTE"] = plan["url"]
    if phase == "cold":
        compile_cubin(make_slots(1, plan["seed"] + 1, ("sm_90",))[0], 0)  # loads the compiler before the forks
    fork = multiprocessing.get_context("fork")
    members = [fork.Process(target=_member, args=(plan, phase, host, index)) for index in range(plan["processes"])]
    for member in members:
        member.start()
    for member in members:
        member.join()
    sys.exit(max(abs(member.exitcode or 0) for member in members) if not phase.startswith(KILLED) else 0)


def _member(plan: dict[str, Any], phase: str, host: int, index: int) -> None:
    die_with_parent()
    rank = host * plan["processes"] + index
    say(plan, f"{phase}-ready-{rank}", pid=os.getpid())
    if not wait_until(lambda: os.path.exists(os.path.join(plan["control"], f"{phase}-go.json")), _READY_SECONDS):
        sys.exit(1)
    directory = f"{plan['directory']}/{phase}-{host}"
    if phase == "restarts":
        _want(plan, directory, rank)
        return
    with FileStreamProgramCache(directory) as cache:
        if phase.startswith(KILLED):
            cache.get_or_compute(f"{plan['token']} {phase}", lambda: hold(plan, phase))
        else:
            digests = compile_all(cache, plan, phase, rank)
            say(plan, f"{phase}-answer-{rank}", host=socket.gethostname(), digests=digests)


def _want(plan: dict[str, Any], directory: str, rank: int) -> None:
    """Want keys that other processes want too, each once, until the time is over."""
    server = RemoteProgramCache(plan["url"])
    wrong = number = computed = 0
    until = time.monotonic() + plan["seconds"]
    with TieredProgramCache(FileStreamProgramCache(directory), server) as cache:
        while time.monotonic() < until:
            number += 1
            wanted = b"%s %d " % (plan["token"].encode(), number) * _REPEATED

            def compute(wanted: bytes = wanted) -> bytes:
                nonlocal computed
                computed += 1
                return wanted

            wrong += cache.get_or_compute(f"{plan['token']} {number}", compute) != wanted
    counts = vars(server.remote_stats())
    waited = server.waited_seconds
    say(plan, f"restarts-answer-{rank}", wrong=wrong, wanted=number, computed=computed, waited=waited, **counts)


if __name__ == "__main__":
    main()
