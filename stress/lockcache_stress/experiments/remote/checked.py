# SPDX-License-Identifier: Apache-2.0
"""The scenario ``checked``: two nodes and a server at fault, and every read held against what is promised.

Processes of both nodes store rising versions under few keys, delete them, and read, while others are killed, a small
cap evicts, the link is slow or spoils answers, and the server is killed and started again. :mod:`.promises` is the
verdict. At the end the processes stay open: traffic has to end when writing does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.remote.checked_node import PROCESSES
from lockcache_stress.processes import interrupts_blocked, wait_until
from lockcache_stress.run import Check, Show, Tabled, some, zero
from lockcache_stress.servers import KINDS, FaultProxy, Server

__all__ = ["run_checked"]

_NODES: Final = 2
_FAULTS: Final = (*("",) * 8, "reset", "half", "garbage", "slow")
_DELAYS: Final = (0.0, 0.0, 0.0, 0.005, 0.1)
_TURN_SECONDS: Final = 1.0
# A server that is started again loses what it has in memory, and takes a while.
_DEATH_TURNS: Final = 6
_QUIET_SECONDS: Final = 2.0
_END_SECONDS: Final = 120.0
_NODE: Final = "lockcache_stress.experiments.remote.checked_node"


def run_checked(kind: str, folder: Path, seconds: float, seed: int, show: Show) -> Tabled:
    """Run the scenario on one server. Raises :class:`UnusableError` if the server is missing."""
    server = KINDS[kind](folder)
    proxy = FaultProxy(server.port)
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        plan = folder / "plan"
        plan.write_text(json.dumps({"directory": str(folder), "seconds": seconds, "seed": seed}))
        environment = {**os.environ, "LOCKCACHE_REMOTE": server.url_at(proxy.port)}
        for number in range(_NODES):
            with interrupts_blocked():
                words = [sys.executable, "-m", _NODE, str(plan), str(number)]
                with open(folder / "said", "ab") as file:  # a warning of each process
                    nodes.append(subprocess.Popen(words, env=environment, stderr=file))
        deaths = _disturb(server, proxy, folder, seconds, random.Random(seed), lambda done: show("remote", done, kind))
        late = _requests_after_the_end(proxy, folder, nodes)
        failed = sum(node.wait(_END_SECONDS) for node in nodes)
    finally:
        for node in nodes:
            node.kill()
            node.wait()
        proxy.close()
        server.kill()
    return _tabled(kind, folder, seed, {"deaths of the server": deaths, "late requests": late, "failed": failed})


def _disturb(server: Server, proxy: FaultProxy, folder: Path, seconds: float, draw: random.Random, show: Any) -> int:
    """Disturb link and server for so long, and leave them well. Returns how often the server was killed."""
    began, turn, deaths = time.monotonic(), 0, 0
    while (passed := time.monotonic() - began) < seconds:
        show(passed / seconds)
        turn += 1
        proxy.fault, proxy.delay_seconds = draw.choice(_FAULTS), draw.choice(_DELAYS)
        if turn % _DEATH_TURNS == 0:
            server.kill()
            server.start()
            deaths += 1
        _ask_again(folder)
        time.sleep(_TURN_SECONDS)
    proxy.fault, proxy.delay_seconds = "", 0.0
    _ask_again(folder)
    return deaths


def _ask_again(folder: Path) -> None:
    """Have the nodes ask the server at once, and not after half a minute, or little is tried."""
    for path in folder.glob("*/lockcache/remote/*/breaker"):
        with contextlib.suppress(OSError):
            path.unlink()


def _requests_after_the_end(proxy: FaultProxy, folder: Path, nodes: list[subprocess.Popen[bytes]]) -> int:
    """Wait until all processes have flushed. Returns how many requests come from them afterwards."""

    def are_flushed() -> bool:
        return len(list(folder.glob("last-*"))) == _NODES * PROCESSES

    wait_until(lambda: are_flushed() or any(node.poll() is not None for node in nodes), _END_SECONDS)
    if not are_flushed():
        raise UnusableError("the processes of a node did not come to their end")
    before = proxy.requests
    time.sleep(_QUIET_SECONDS)  # nothing tells that nothing comes
    late = proxy.requests - before
    (folder / "leave").touch()
    return late


def _tabled(kind: str, folder: Path, seed: int, numbers: dict[str, int]) -> Tabled:
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for path in folder.glob("found-*"):
        found = json.loads(path.read_text())
        counts.update(found["counts"])
        faults += found["faults"]
    lines = [
        zero("reads that break a promise", len(faults)),
        zero("writes that are neither sent nor counted as lost", counts["uncounted"]),
        zero("requests after the last write was sent", numbers["late requests"]),
        zero("processes that failed", numbers["failed"]),
        some("reads", counts["reads"]),
        some("writes", counts["writes"]),
        some("deletions", counts["deletions"]),
        some("reads that the server answered", counts["hits of the server"]),
        some("writes that it took", counts["sent"]),
        Check("writes lost, and counted", f"{counts['lost']:,}"),
        Check("deaths of the server", f"{numbers['deaths of the server']:,}"),
        *(Check("a fault", fault, "none", ok=False) for fault in faults[:5]),
        *(Check("a failure", line, "none", ok=False) for line in _failures(folder)),
    ]
    title = f"checked on {kind}: {_NODES} nodes, rising versions, seed {seed}"
    said = {"server": kind, "trial": "checked", **numbers, **counts, "faults": faults[:20]}
    return Tabled(f"{kind} checked", title, lines, said, [kind])


def _failures(folder: Path) -> list[str]:
    """Returns the first lines that processes said and that are not warnings of lockcache: the ends of tracebacks."""
    lines = (folder / "said").read_text(errors="replace").splitlines()
    return [line[:200] for line in lines if line and not line.startswith(("lockcache: ", " ", "Traceback "))][:5]
