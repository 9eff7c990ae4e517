# SPDX-License-Identifier: Apache-2.0
"""The trials of a fleet: cold starts on several hosts, a killed holder, a server that is killed again and again.

Each trial runs on a real server in a host of its own; the hosts are namespaces, with a directory each. NVRTC compiles
the programs. The tables of :func:`run_remote` say what must hold; times are judged, although they depend on this
machine.
"""

from __future__ import annotations

import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import dump
from pathlib import Path
from typing import Any, Final

from lockcache.errors import how_to_install
from lockcache.lowlevel import Layout
from lockcache.remote import read_servers
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.mpi_rank import KILLED, differing, kill_all, said, say
from lockcache_stress.experiments.remote.checked import run_checked
from lockcache_stress.experiments.remote.distant import run_distant
from lockcache_stress.experiments.remote.million import run_million
from lockcache_stress.experiments.remote.peers import run_peers
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import interrupts_blocked, wait_until
from lockcache_stress.run import Check, Show, Tabled, equal, some, zero
from lockcache_stress.servers import KINDS, Place, Server
from lockcache_stress.trouble import Host, made_hosts, open_workspace, why_no_namespaces

__all__ = ["ALONE", "SCENARIOS", "FleetOptions", "run_remote", "why_no_fleet"]

_MEMBER: Final = "lockcache_stress.experiments.remote.member"
_NODES: Final = 4
_PHASE_SECONDS: Final = 300.0
#: The longest time from the SIGKILL of a holder to the next holder's start: a lease ends by itself after three seconds.
_MOST_TAKEOVER_SECONDS: Final = 4.0
_DEATHS: Final = 3
# A waiter looks less and less often: a death costs most once all look as rarely as they ever do, and the lease has been
# renewed.
_SETTLE_SECONDS: Final = 1.5
# The server of a fleet does not compete with compilers; here it shares their processors, and so has a higher priority.
_OWN_PROCESSORS: Final = ("nice", "-n", "-15")
_RESTART_SECONDS: Final = 2.0
_MOST_WAITED_SECONDS: Final = 1.0
_COUNTED: Final = ("hits", "misses", "puts", "lost_puts", "errors", "bytes_read", "bytes_written")


@dataclass(frozen=True)
class FleetOptions:
    """The options of a run."""

    servers: tuple[str, ...]
    scenarios: tuple[str, ...]
    #: The processes on each node.
    processes: int
    kernels: int
    #: The keys of the scenario ``million``.
    keys: int
    #: The time during which a server is killed and started again and again.
    seconds: float
    seed: int
    #: The time of the scenario ``checked``, on each server.
    checked_seconds: float


def why_no_fleet() -> str | None:
    """Returns why a fleet cannot be had here, whatever the server; ``None`` if it can."""
    return why_no_namespaces() or (None if has_nvrtc() else f"needs cuda.core and NVRTC: {how_to_install('cuda')}")


class _Fleet:
    """One server and its nodes, and the answers of their processes."""

    def __init__(self, options: FleetOptions, server: Server, nodes: list[Host], folder: Path) -> None:
        self.options, self.server, self._nodes = options, server, nodes
        self.control = str(folder / "control")
        os.mkdir(self.control)
        self._plan = {
            "directory": str(folder), "control": self.control, "url": server.url, "token": secrets.token_hex(8),
            "kernels": options.kernels, "seed": options.seed, "seconds": options.seconds,
        }  # fmt: skip

    @contextmanager
    def started(self, phase: str, processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Start the nodes with their processes, and let them begin when all are ready. They end with the block."""
        path = f"{self.control}/{phase}.plan"
        with open(path, "w") as file:
            dump({**self._plan, "processes": processes}, file)
        running: list[subprocess.Popen[bytes]] = []
        try:
            for number, node in enumerate(self._nodes):
                with interrupts_blocked():
                    words = node.command(sys.executable, "-m", _MEMBER, path, phase, str(number))
                    running.append(subprocess.Popen(words))
            count = processes * len(self._nodes)
            self.until(running, lambda: len(self.said(f"{phase}-ready-*")) == count)
            say(self._plan, f"{phase}-go")
            yield running
        finally:
            for process in running:
                process.kill()  # its children end with it
                process.wait()

    def run(self, phase: str, processes: int, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        """Run a phase to its end. Returns the answers of the processes."""
        with self.started(phase, processes) as running:
            until = time.monotonic() + _PHASE_SECONDS
            while any(process.poll() is None for process in running) and time.monotonic() < until:
                meanwhile()
                time.sleep(0.01)
            codes = [process.poll() for process in running]
        if any(codes):
            raise UnusableError(f"processes of {phase} ended with exit codes {codes}; what they said is above")
        return self.said(f"{phase}-answer-*")

    def counted(self, phase: str) -> dict[str, int]:
        """Returns the counters of the server: the sum of what the directories of all nodes have counted."""
        total: Counter[str] = Counter()
        for number in range(len(self._nodes)):
            for seen in read_servers(Layout(f"{self._plan['directory']}/{phase}-{number}")):
                total.update({name: getattr(seen.counters, name) for name in _COUNTED})
        return dict(total)

    def until(self, running: Sequence[subprocess.Popen[bytes]], is_so: Callable[[], bool]) -> None:
        """Wait until ``is_so()``. Raises :class:`UnusableError` if a process ends before."""
        wait_until(lambda: is_so() or any(process.poll() is not None for process in running), _PHASE_SECONDS)
        if not is_so():
            raise UnusableError("processes ended, or said nothing, before what they were to do was done")

    def said(self, pattern: str) -> list[dict[str, Any]]:
        """Returns what processes left under names that match ``pattern``."""
        return said(self.control, pattern)


def _cold(fleet: _Fleet) -> tuple[list[Check], dict[str, Any]]:
    """Have all processes of all nodes want the same new kernels at once."""
    options = fleet.options
    began = time.monotonic()
    answers = fleet.run("cold", options.processes)
    seconds = round(time.monotonic() - began, 2)
    compiles = len(fleet.said("cold-compile-*"))
    counts = fleet.counted("cold")
    if fleet.server.has_leases:
        counted = equal("cold: compiles == kernels", compiles, options.kernels)
    else:
        most = options.kernels * _NODES
        is_so = options.kernels <= compiles <= most
        counted = Check("cold: compiles, without leases", f"{compiles:,}", f"<= {most:,}", is_so)
    lines = [
        equal("nodes that processes ran on", len({each["host"] for each in answers}), _NODES),
        counted,
        equal(
            "programs got", sum(len(each["digests"]) for each in answers), options.kernels * options.processes * _NODES
        ),
        zero("programs that differ between processes", differing(answers)),
        zero("errors of the server", counts["errors"]),
        Check("cold", f"{seconds:.1f} s"),
    ]
    return lines, {"compiles": compiles, "cold_seconds": seconds, "counts": counts}


def _takeover(fleet: _Fleet) -> tuple[list[Check], dict[str, Any]]:
    """SIGKILL the process that compiles for all, when processes of all nodes wait for it."""
    if not fleet.server.has_leases:
        return [Check("takeover", "no leases over HTTP: nobody waits for another node")], {}
    took = [_kill_holder(fleet, f"{KILLED}-{number}") for number in range(_DEATHS)]
    longest = max(took)
    most = f"<= {_MOST_TAKEOVER_SECONDS:g} s"
    lines = [
        equal("holders killed, each replaced", len(took), _DEATHS),
        Check("takeover, median", f"{statistics.median(took):.2f} s"),
        Check("takeover, longest", f"{longest:.2f} s", most, longest <= _MOST_TAKEOVER_SECONDS),
    ]
    return lines, {"takeover_seconds": took}


def _kill_holder(fleet: _Fleet, phase: str) -> float:
    with fleet.started(phase, 1) as running:
        fleet.until(running, lambda: bool(fleet.said(f"{phase}-holds")))
        time.sleep(_SETTLE_SECONDS)
        [holder] = fleet.said(f"{phase}-holds")
        killed_ns = time.monotonic_ns()
        os.kill(holder["pid"], signal.SIGKILL)
        wait_until(lambda: fleet.said(f"{phase}-took"), _PHASE_SECONDS)
        found = fleet.said(f"{phase}-took")
        kill_all(fleet.control, f"{phase}-ready-*")
    if not found:
        raise UnusableError("nobody took a killed holder's place")
    return float(round((found[0]["began_ns"] - killed_ns) / 1e9, 2))


def _restarts(fleet: _Fleet) -> tuple[list[Check], dict[str, Any]]:
    """Kill and start the server every two seconds, while processes of all nodes work."""
    due, restarts = time.monotonic() + _RESTART_SECONDS, 0

    def restart() -> None:
        nonlocal due, restarts
        if time.monotonic() >= due:
            fleet.server.kill()
            fleet.server.start()
            due, restarts = time.monotonic() + _RESTART_SECONDS, restarts + 1

    processes = min(2, fleet.options.processes)
    answers = fleet.run("restarts", processes, restart)
    total = {name: sum(each[name] for each in answers) for name in ("wanted", "computed", "wrong", "puts", "lost_puts")}
    errors, longest = sum(each["errors"] for each in answers), max(each["waited"] for each in answers)
    is_bounded = longest <= _MOST_WAITED_SECONDS
    lines = [
        equal("processes that came to their end", len(answers), processes * _NODES),
        some("restarts", restarts),
        some("programs wanted", total["wanted"]),
        zero("wrong bytes", total["wrong"]),
        some("errors, all of them counted", errors),
        equal("puts taken and lost == computed", total["puts"] + total["lost_puts"], total["computed"]),
        Check(
            "waited in vain, the longest of a process", f"{longest:.2f} s", f"<= {_MOST_WAITED_SECONDS:g} s", is_bounded
        ),
    ]
    return lines, {"restarts": restarts, **total, "errors": errors, "waited_seconds": longest}


_ON_A_FLEET: Final[dict[str, Callable[[_Fleet], tuple[list[Check], dict[str, Any]]]]] = {
    "cold": _cold,
    "takeover": _takeover,
    "restarts": _restarts,
}
#: The scenarios without namespaces: the first two run on each server, the others on one Valkey.
ALONE: Final = ("checked", "distant", "million", "peers")
#: The names of all scenarios.
SCENARIOS: Final = (*_ON_A_FLEET, *ALONE)


def run_remote(options: FleetOptions, found: list[Tabled], skipped: list[tuple[str, str]], show: Show) -> None:
    """Run the scenarios on each server. Add their results to ``found``, and what cannot be had to ``skipped``."""
    for number, kind in enumerate(options.servers):
        show("remote", number / len(options.servers), kind)
        try:
            found += _run_on(kind, options, show)
        except _MissingError as error:
            skipped.append((kind, str(error)))
    if "valkey" not in options.servers:
        return
    with open_workspace(None) as space:
        if "million" in options.scenarios:
            found.append(run_million(Path(space.control), options.keys, options.seed, show))
        if "peers" in options.scenarios:
            found.append(run_peers(Path(space.control), options.seed, show))


class _MissingError(UnusableError):
    """The server is not installed."""


@contextmanager
def _missing_if_unusable() -> Iterator[None]:
    try:
        yield
    except UnusableError as error:
        raise _MissingError(str(error)) from None


def _run_on(kind: str, options: FleetOptions, show: Show) -> Iterator[Tabled]:
    if "checked" in options.scenarios:
        with open_workspace(None) as space, _missing_if_unusable():
            yield run_checked(kind, Path(space.control), options.checked_seconds, options.seed, show)
    if "distant" in options.scenarios:
        with open_workspace(None) as space, _missing_if_unusable():
            yield run_distant(kind, Path(space.control), show)
    for name in [each for each in options.scenarios if each in _ON_A_FLEET]:
        with open_workspace(None) as space, made_hosts(1 + _NODES) as (host, *nodes):
            folder = Path(space.control, "server")
            folder.mkdir()
            with _missing_if_unusable():
                server = KINDS[kind](folder, place=Place(host.address, (*_OWN_PROCESSORS, *host.command())))
            try:
                show("remote", 0.0, f"{kind}: {name}")
                lines, numbers = _ON_A_FLEET[name](_Fleet(options, server, nodes, Path(space.cache)))
            finally:
                server.kill()
        title = f"{name} on {kind}: {_NODES} nodes x {options.processes} processes, seed {options.seed}"
        said = {"server": kind, "trial": name, "nodes": _NODES, "processes": options.processes, **numbers}
        yield Tabled(f"{kind} {name}", title, lines, said, [kind])
