"""Traffic over both hosts: the suite's workers on one directory, every read judged, and every key's history.

Registers, counters and histories are in memory that both hosts' processes share, as they share the clock: the detectors
are those of one host. A miss proves nothing here, since a host may see another's put a moment later.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from glob import glob
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank, enter
from lockcache_stress.hosts.guest.site import Client, Site
from lockcache_stress.judge import as_text, judge_histories, load_histories
from lockcache_stress.plan import Plan, Step, now_us
from lockcache_stress.run import Counters, Worker, bytes_on_disk, is_stopped, run_worker

__all__ = ["Action", "run_traffic", "settle"]

#: Something that is done to the site, so many seconds after the workers began.
Action = tuple[float, Callable[[], object]]

_FORK: Final = multiprocessing.get_context("fork")
_CONTROL: Final = "/run/control"
_READY_SECONDS: Final = 180.0
_TICK_SECONDS: Final = 0.05
_PAUSE_FACTOR: Final = 8
_COUNTED: Final = ("operations", "hits", "misses", "puts", "torn", "stale", "foreign", "dropped", "evictions")
_MOST_FINDINGS: Final = 5


def run_traffic(
    site: Site,
    name: str,
    make_step: Callable[[Worker], Step],
    *,
    each: int,
    keys: int,
    max_size_bytes: int,
    seconds: float,
    seed: int,
    actions: Sequence[Action] = (),
    samples: bool = False,
) -> dict[str, Any]:
    """Run ``each`` workers on each host until they end by themselves, or their time is over; returns what was counted.

    ``samples``: whether all of them are stopped now and then to see how much the server's disk holds.
    """
    site.make(name)
    control = os.path.join(_CONTROL, name)
    os.makedirs(control)
    count = each * len(site.clients)
    plan = Plan(name, count, seconds, seed, max_size_bytes, site.at(name), control, keys, make_step=make_step)
    plan = replace(plan, misses_tell_nothing=True)
    with _Workers(plan, [client for client in site.clients for _ in range(each)]) as workers:
        workers.wait_until_ready()
        peak = _Peak(site.at(name))
        workers.run(peak if samples else None, list(actions))
    peak.look()
    judged = judge_histories(load_histories(control))
    findings = [{"error": as_text(judged.smallest[1])}] if judged.smallest else []
    return {
        **{each: workers.counters.total(each) for each in _COUNTED},
        "deaths": workers.deaths,
        "illegal_histories": len(judged.illegal),
        "recorded": judged.operations,
        "cap_bytes": max_size_bytes,
        "peak_bytes": peak.bytes,
        "samples": peak.samples,
        "findings": [*findings, *_findings(control)][:_MOST_FINDINGS],
    }


def settle(site: Site, name: str) -> dict[str, Any]:
    """Returns what a later process finds accounted, what is on the disk, and which shards a recount sets right."""
    client = site.clients[0]
    with Rank(client) as rank:
        rank.call("open", client.at(name))
        accounted = rank.call("accounted_bytes")
        disk = bytes_on_disk(site.at(name))
        return {"accounted_bytes": accounted, "disk_bytes": disk, "repaired_shards": rank.call("recount")}


class _Peak:
    """The most that the server's disk held at any sample, with all writers stopped; no cache is opened for it there.

    The suite's sampler reads the accounting too, as a process on the server: a third host, which is not what is tried.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._next = 0.0
        self.bytes = 0
        self.samples = 0

    def sample(self, pids: Sequence[int]) -> None:
        """Look, if it is time: a walk must not become the load."""
        began = time.monotonic()
        if began < self._next:
            return
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if all(is_stopped(pid) for pid in pids):
                self.look()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        self._next = time.monotonic() + _PAUSE_FACTOR * (time.monotonic() - began)

    def look(self) -> None:
        self.bytes = max(self.bytes, bytes_on_disk(self._directory))
        self.samples += 1


class _Workers:
    """The workers of one run."""

    def __init__(self, plan: Plan, clients: Sequence[Client]) -> None:
        self._plan = plan
        self._running: dict[int, ForkProcess] = {}
        self._stack = ExitStack()
        self.counters = Counters(plan)
        self.deaths: list[str] = []
        epoch_us = now_us()
        for writer, client in enumerate(clients):
            here = replace(plan, directory=client.at(plan.scenario))
            process = _FORK.Process(target=_work, args=(client, here, writer, epoch_us), daemon=True)
            self._running[writer] = process

    def __enter__(self) -> _Workers:
        for process in self._running.values():
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.join()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self.counters.total("ready") < self._plan.processes:
            self._reap(_TICK_SECONDS)
            if self.deaths or time.monotonic() > deadline:
                raise TimeoutError(f"the workers did not open the cache: {self.deaths} {_findings(self._plan.control)}")

    def run(self, peak: _Peak | None, actions: list[Action]) -> None:
        began = time.monotonic()
        self.counters.start(now_us(), self._plan.latest_stop_us())
        stops = began + self._plan.seconds
        while self._running:
            if actions and time.monotonic() - began > actions[0][0]:
                actions.pop(0)[1]()
            if peak is not None:
                peak.sample([process.pid for process in self._running.values() if process.pid])
            if time.monotonic() > stops and not actions:
                self.counters.stop()
            self._reap(_TICK_SECONDS)

    def _reap(self, seconds: float) -> None:
        wait([process.sentinel for process in self._running.values()], timeout=seconds)
        for writer, process in list(self._running.items()):
            if process.is_alive():
                continue
            if process.exitcode:
                self.deaths.append(f"worker {writer} ended with {process.exitcode}")
            del self._running[writer]


def _work(client: Client, plan: Plan, writer: int, epoch_us: int) -> None:
    enter(client)
    run_worker(plan, writer, writer, epoch_us)


def _findings(control: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(glob(os.path.join(control, "findings-*.jsonl"))):
        with open(path) as file:
            found.extend(json.loads(line) for line in file)
    return found
