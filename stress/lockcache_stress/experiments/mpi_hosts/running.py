"""Runs the jobs: cold, warm, and one in which the rank that has the turn is killed, again and again.

Whatever happens, no rank and no host is left when :func:`run_on_hosts` ends.
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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from glob import glob
from typing import Any, Final

from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.mpi_hosts.networks import Host, hosts, why_no_hosts, write_launcher
from lockcache_stress.experiments.mpi_hosts.rank import KILLED
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import wait_until
from lockcache_stress.run import Check, equal, find_mpiexec, started_job
from lockcache_stress.trouble import open_workspace

__all__ = ["HostsFound", "HostsOptions", "run_on_hosts"]

_RANK: Final = "lockcache_stress.experiments.mpi_hosts.rank"
_KERNELS: Final = 8
# Of one rank each, in a job of its own: mpiexec may end other ranks of that host with it.
_DEATHS: Final = 3
_MOST_TAKEOVER_MS: Final = 100.0
_JOB_SECONDS: Final = 300.0
# A waiter that has asked looks less and less often; what a death costs is seen when all are at their slowest.
_SETTLE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class HostsOptions:
    """What the command line says."""

    hosts: int
    #: On each host.
    ranks: int
    seed: int
    directory: str | None = None

    @property
    def all_ranks(self) -> int:
        return self.hosts * self.ranks


@dataclass
class HostsFound:
    """What the jobs found."""

    options: HostsOptions
    #: By phase: kernels that were compiled, and seconds.
    compiles: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    answers: int = 0
    #: Programs that are other bytes than another rank's.
    differing: int = 0
    host_names: set[str] = field(default_factory=set)
    #: From a SIGKILL to the next holder's start.
    takeovers_ms: list[float] = field(default_factory=list)

    def checks(self) -> list[Check]:
        """The verdict, line by line."""
        options = self.options
        wanted = 2 * _KERNELS * options.all_ranks
        median = statistics.median(self.takeovers_ms) if self.takeovers_ms else float("inf")
        return [
            equal("hosts that ranks ran on", len(self.host_names), options.hosts),
            equal("cold: compiles == kernels", self.compiles["cold"], _KERNELS),
            equal("warm: compiles", self.compiles["warm"], 0),
            equal("programs got", self.answers, wanted),
            equal("programs that differ between ranks", self.differing, 0),
            equal("ranks killed in their turn, each replaced", len(self.takeovers_ms), _DEATHS),
            Check(
                "takeover, median", f"{median:.0f} ms", f"<= {_MOST_TAKEOVER_MS:.0f} ms", median <= _MOST_TAKEOVER_MS
            ),
            Check("takeover, longest", f"{max(self.takeovers_ms, default=0):.0f} ms"),
            Check("cold", f"{self.seconds['cold']:.1f} s"),
            Check("warm", f"{self.seconds['warm']:.1f} s"),
        ]

    def numbers(self) -> dict[str, Any]:
        """For ``--json``."""
        options = self.options
        return {
            "hosts": options.hosts,
            "ranks": options.all_ranks,
            "kernels": _KERNELS,
            "seed": options.seed,
            "compiles": self.compiles,
            "seconds": self.seconds,
            "takeovers_ms": self.takeovers_ms,
        }


def run_on_hosts(options: HostsOptions, show: Callable[[str, float, str], None]) -> HostsFound:
    """Run it. Raises :class:`UnusableError` where there is no root, MPI or NVRTC."""
    reason = why_no_hosts() if has_nvrtc() else f"needs cuda.core and NVRTC: {how_to_install('cuda')}"
    if reason is not None:
        raise UnusableError(f"mpi --hosts cannot be run here: {reason}")
    found = HostsFound(options)
    with open_workspace(options.directory) as space, hosts(options.hosts) as made:
        job = _Job(options, made, space.cache, space.control)
        for number, phase in enumerate(("cold", "warm")):
            show("mpi", number / 3, phase)
            _run_phase(job, phase, found)
        show("mpi", 2 / 3, "ranks are killed")
        found.takeovers_ms = [_kill_holder(job, f"{KILLED}-{number}") for number in range(_DEATHS)]
    return found


def _run_phase(job: _Job, phase: str, found: HostsFound) -> None:
    began = time.monotonic()
    with job.started(phase) as process:
        _wait(process)
        if process.returncode:
            raise UnusableError(f"mpiexec ended with exit code {process.returncode}; what it said is above")
    found.seconds[phase] = round(time.monotonic() - began, 3)
    found.compiles[phase] = len(job.said(f"{phase}-compile-*"))
    answers = job.said(f"{phase}-answer-*")
    found.answers += sum(len(each["digests"]) for each in answers)
    found.differing += sum(len(set(same)) - 1 for same in zip(*(each["digests"] for each in answers), strict=True))
    found.host_names |= {each["host"] for each in answers}


def _kill_holder(job: _Job, phase: str) -> float:
    """SIGKILL who has the turn of a key, when all others wait for it; milliseconds until another one begins."""
    with job.started(phase) as process:
        try:
            _until(process, lambda: len(job.said(f"{phase}-asks-*")) == job.options.all_ranks)
            _until(process, lambda: bool(job.said(f"{phase}-holds")))
            time.sleep(_SETTLE_SECONDS)
            [holder] = job.said(f"{phase}-holds")
            killed_ns = time.monotonic_ns()
            os.kill(holder["pid"], signal.SIGKILL)
            _until(process, lambda: bool(job.said(f"{phase}-took")))
            [next_one] = job.said(f"{phase}-took")
            return float(round((next_one["began_ns"] - killed_ns) / 1e6, 1))
        finally:
            for each in job.said(f"{phase}-asks-*"):
                with suppress(ProcessLookupError):  # mpiexec ends some of them too
                    os.kill(each["pid"], signal.SIGKILL)


class _Job:
    """How ranks are started, and what they said."""

    def __init__(self, options: HostsOptions, made: list[Host], directory: str, control: str) -> None:
        self.options, self._hosts, self._control = options, made, control
        self._launcher = os.path.join(control, "launcher")
        write_launcher(self._launcher, made)
        plan = {"directory": directory, "control": control, "kernels": _KERNELS, "seed": options.seed}
        self._plan = os.path.join(control, "plan.json")
        with open(self._plan, "w") as file:
            json.dump(plan, file)

    def started(self, phase: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """The job. It is ended with the block."""
        options, first = self.options, self._hosts[0]
        addresses = ",".join(host.address for host in self._hosts)
        command = [str(find_mpiexec()), "-launcher", "ssh", "-launcher-exec", self._launcher]
        command += ["-localhost", first.address, "-hosts", addresses, "-ppn", str(options.ranks)]
        command += ["-disable-auto-cleanup"] if phase.startswith(KILLED) else []
        command += ["-n", str(options.all_ranks), sys.executable, "-m", _RANK, self._plan, phase]
        return started_job(first.command(*command))

    def said(self, pattern: str) -> list[dict[str, Any]]:
        """What ranks left by names like this."""
        found = []
        for path in glob(os.path.join(self._control, f"{pattern}.json")):
            with open(path) as file:
                found.append(json.load(file))
        return found


def _until(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    wait_until(lambda: is_so() or process.poll() is not None, _JOB_SECONDS)
    if not is_so():
        raise UnusableError("the ranks ended, or said nothing, before what they were to do was done")


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_JOB_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnusableError(f"the job did not end within {_JOB_SECONDS:.0f} s") from None
