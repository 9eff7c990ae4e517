# SPDX-License-Identifier: Apache-2.0
"""MPI ranks on several hosts: one job over hosts made of namespaces compiles each kernel once, and outlives a rank.

Runs the job with an empty directory, with a filled one, and several times with the rank killed that has the turn. A
host has a network, an address and a name of its own, and shares the disk and the pids; a rank is :mod:`.mpi_rank`.
Whatever happens, no rank and no host is left when :func:`run_on_hosts` ends. Needs root and iproute2. Two runs may go
on at once, because each has networks of its own.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.mpi_rank import KILLED, differing, kill_all, said
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import wait_until
from lockcache_stress.run import Check, Show, Tabled, equal, find_mpiexec, started_job, why_no_mpi
from lockcache_stress.trouble import Host, made_hosts, open_workspace, why_no_namespaces

_RANK: Final = "lockcache_stress.experiments.mpi_rank"
_KERNELS: Final = 8
# Each death is of one rank, in a job of its own, because mpiexec may end other ranks of the host with the killed one.
_DEATHS: Final = 3
_MOST_TAKEOVER_MS: Final = 100.0
_JOB_SECONDS: Final = 300.0
# Waiters look less and less often: a death costs most when all of them look as rarely as they ever do.
_SETTLE_SECONDS: Final = 1.0

# mpiexec starts its proxies by this command in place of ssh: LAUNCHER [options of ssh] ADDRESS COMMAND...
_LAUNCHER: Final = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
address=$1; shift
case $address in
%s
*) echo "$0: no host has the address $address" >&2; exit 1;;
esac
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
"""


@dataclass(frozen=True)
class HostsOptions:
    """The options of a run."""

    hosts: int
    #: The ranks on each host.
    ranks: int
    seed: int
    directory: str | None = None

    @property
    def all_ranks(self) -> int:
        return self.hosts * self.ranks


class _Job:
    """The start of ranks, and their answers."""

    def __init__(self, options: HostsOptions, made: list[Host], directory: str, control: str) -> None:
        self.options, self._hosts, self.control = options, made, control
        self._launcher = os.path.join(control, "launcher")
        cases = "\n".join(f"{host.address}) host={host.name};;" for host in made)
        with open(self._launcher, "w") as file:
            file.write(_LAUNCHER % cases)
        os.chmod(self._launcher, 0o700)
        plan = {"directory": directory, "control": control, "kernels": _KERNELS, "seed": options.seed}
        self._plan = os.path.join(control, "plan.json")
        with open(self._plan, "w") as file:
            json.dump(plan, file)

    def started(self, phase: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start the job, which ends with the block."""
        options, first = self.options, self._hosts[0]
        addresses = ",".join(host.address for host in self._hosts)
        command = [str(find_mpiexec()), "-launcher", "ssh", "-launcher-exec", self._launcher]
        command += ["-localhost", first.address, "-hosts", addresses, "-ppn", str(options.ranks)]
        command += ["-disable-auto-cleanup"] if phase.startswith(KILLED) else []
        command += ["-n", str(options.all_ranks), sys.executable, "-m", _RANK, self._plan, phase]
        return started_job(first.command(*command))

    def run(self, phase: str) -> dict[str, Any]:
        """Run a phase in which all kernels are compiled. Returns its counts."""
        began = time.monotonic()
        with self.started(phase) as process:
            try:
                process.wait(_JOB_SECONDS)
            except subprocess.TimeoutExpired:
                raise UnusableError(f"the job did not end within {_JOB_SECONDS:.0f} s") from None
            if process.returncode:
                raise UnusableError(f"mpiexec ended with exit code {process.returncode}; what it said is above")
        answers = self.said(f"{phase}-answer-*")
        return {
            "seconds": round(time.monotonic() - began, 3),
            "compiles": len(self.said(f"{phase}-compile-*")),
            "answers": sum(len(each["digests"]) for each in answers),
            "differing": differing(answers),
            "hosts": {each["host"] for each in answers},
        }

    def said(self, pattern: str) -> list[dict[str, Any]]:
        """Returns what ranks left under names that match ``pattern``."""
        return said(self.control, pattern)


def why_no_hosts() -> str | None:
    """Returns why hosts and ranks cannot be had here; ``None`` if they can, as far as can be known without a trial."""
    return why_no_namespaces() or why_no_mpi()


def run_on_hosts(options: HostsOptions, show: Show) -> Tabled:
    """Run the job. Raises :class:`UnusableError` where there is no root, MPI or NVRTC."""
    reason = why_no_hosts() if has_nvrtc() else f"needs cuda.core and NVRTC: {how_to_install('cuda')}"
    if reason is not None:
        raise UnusableError(f"mpi --hosts cannot be run here: {reason}")
    phases: dict[str, dict[str, Any]] = {}
    with open_workspace(options.directory) as space, made_hosts(options.hosts) as made:
        job = _Job(options, made, space.cache, space.control)
        for number, phase in enumerate(("cold", "warm")):
            show("mpi", number / 3, phase)
            phases[phase] = job.run(phase)
        show("mpi", 2 / 3, "ranks are killed")
        takeovers_ms = [_kill_holder(job, f"{KILLED}-{number}") for number in range(_DEATHS)]
    return _tabulate(options, phases, takeovers_ms)


def _tabulate(options: HostsOptions, phases: dict[str, dict[str, Any]], takeovers_ms: list[float]) -> Tabled:
    """Returns the verdict. A takeover lasts from a SIGKILL to the start of the next holder."""
    median, both = statistics.median(takeovers_ms), list(phases.values())
    answers = sum(each["answers"] for each in both)
    lines = [
        equal("hosts that ranks ran on", len(set.union(*(each["hosts"] for each in both))), options.hosts),
        equal("cold: compiles == kernels", phases["cold"]["compiles"], _KERNELS),
        equal("warm: compiles", phases["warm"]["compiles"], 0),
        equal("programs got", answers, 2 * _KERNELS * options.all_ranks),
        equal("programs that differ between ranks", sum(each["differing"] for each in both), 0),
        equal("ranks killed in their turn, each replaced", len(takeovers_ms), _DEATHS),
        Check("takeover, median", f"{median:.0f} ms", f"<= {_MOST_TAKEOVER_MS:.0f} ms", median <= _MOST_TAKEOVER_MS),
        Check("takeover, longest", f"{max(takeovers_ms):.0f} ms"),
        *(Check(name, f"{each['seconds']:.1f} s") for name, each in phases.items()),
    ]
    numbers = {
        "hosts": options.hosts,
        "ranks": options.all_ranks,
        "kernels": _KERNELS,
        "seed": options.seed,
        **{what: {name: each[what] for name, each in phases.items()} for what in ("compiles", "seconds")},
        "takeovers_ms": takeovers_ms,
    }
    title = f"mpi: {options.hosts} hosts x {options.ranks} ranks, seed {options.seed}"
    return Tabled("mpi", title, lines, numbers, [f"{answers:,}"])


def _kill_holder(job: _Job, phase: str) -> float:
    """SIGKILL the rank that has the turn of a key, when all others wait for this rank.

    Returns the milliseconds until another rank begins.
    """
    with job.started(phase) as process:
        try:
            _wait_until(process, lambda: len(job.said(f"{phase}-asks-*")) == job.options.all_ranks)
            _wait_until(process, lambda: bool(job.said(f"{phase}-holds")))
            time.sleep(_SETTLE_SECONDS)
            [holder] = job.said(f"{phase}-holds")
            killed_ns = time.monotonic_ns()
            os.kill(holder["pid"], signal.SIGKILL)
            _wait_until(process, lambda: bool(job.said(f"{phase}-took")))
            [next_one] = job.said(f"{phase}-took")
            return float(round((next_one["began_ns"] - killed_ns) / 1e6, 1))
        finally:
            kill_all(job.control, f"{phase}-asks-*")  # mpiexec may have ended some of them too


def _wait_until(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    wait_until(lambda: is_so() or process.poll() is not None, _JOB_SECONDS)
    if not is_so():
        raise UnusableError("the ranks ended, or said nothing, before what they were to do was done")
