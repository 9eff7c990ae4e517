# SPDX-License-Identifier: Apache-2.0
"""Traffic over both hosts: the suite's workers on one directory, every read judged, and every key's history.

The processes of both hosts share the memory of registers, counters and histories, and the clock, so that the detectors
of one host judge both. A miss proves nothing here, since a host may see another host's put a moment later.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import REAPED_AFTER_SECONDS, Rank, enter
from lockcache_stress.hosts.guest.site import Client, Site
from lockcache_stress.judge import as_text, judge_histories, load_histories
from lockcache_stress.plan import Plan, Step
from lockcache_stress.processes import start_process
from lockcache_stress.run import SpawnedWorkers, Worker, bytes_on_disk, read_findings, run_worker, stopped

#: An action on the site, and the seconds from the workers' begin to the action.
Action = tuple[float, Callable[[], object]]

_FORK: Final = multiprocessing.get_context("fork")
_CONTROL: Final = "/run/control"
_TICK_SECONDS: Final = 0.05
_PAUSE_FACTOR: Final = 8
_COUNTED: Final = ("operations", "hits", "misses", "puts", "torn", "stale", "foreign", "dropped", "evictions")
_MOST_FINDINGS: Final = 5
# A put that evicts takes seconds in an emulated guest, for several of which another writer may have to wait.
_LOCK_SECONDS: Final = 60.0


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
    """Run ``each`` workers on each host until they end by themselves, or their time is over. Returns their counts.

    ``samples``: whether all workers are stopped now and then to measure what the server's disk holds.
    """
    site.make(name)
    control = os.path.join(_CONTROL, name)
    os.makedirs(control)
    count = each * len(site.clients)
    plan = Plan(name, count, seconds, seed, max_size_bytes, site.at(name), control, keys, make_step=make_step)
    plan = replace(plan, misses_tell_nothing=True, extra={"cache": {"lock_timeout_seconds": _LOCK_SECONDS}})
    workers = _Workers(plan, [client for client in site.clients for _ in range(each)])
    with workers:
        workers.wait_until_ready()
        peak = _Peak(site.at(name))
        workers.run(peak if samples else None, list(actions))
    peak.count()
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
        "findings": [*findings, *read_findings(control)][:_MOST_FINDINGS],
    }


def settle(site: Site, name: str) -> dict[str, Any]:
    """Returns the bytes that a later process finds accounted, those on disk, and the shards that a recount corrects.

    That process has reaped the files of workers that did not get a lock in time.
    """
    client = site.clients[0]
    with Rank(client) as rank:
        rank.call("open", client.at(name))
        rank.call("reap", REAPED_AFTER_SECONDS)
        accounted = rank.call("accounted_bytes")
        disk = bytes_on_disk(site.at(name))
        return {"accounted_bytes": accounted, "disk_bytes": disk, "repaired_shards": rank.call("recount")}


class _Peak:
    """The most bytes that the server's disk held at any sample, with all writers stopped.

    The suite's own sampler would open a cache on the server to read the accounting, and so be a third host.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._next = 0.0
        self.bytes = 0
        self.samples = 0

    def sample(self, pids: Sequence[int]) -> None:
        """Take a sample if one is due, so that samples are not most of the load."""
        began = time.monotonic()
        if began < self._next:
            return
        with stopped(pids) as is_still:
            if is_still:
                self.count()
        self._next = time.monotonic() + _PAUSE_FACTOR * (time.monotonic() - began)

    def count(self) -> None:
        self.bytes = max(self.bytes, bytes_on_disk(self._directory))
        self.samples += 1


class _Workers(SpawnedWorkers):
    """The workers of one run, each on its client."""

    def __init__(self, plan: Plan, clients: Sequence[Client]) -> None:
        super().__init__(plan)
        self._clients = clients

    def wait_until_ready(self) -> None:
        super().wait_until_ready()
        if self.deaths:
            raise RuntimeError(f"the workers did not open the cache: {self.deaths} {read_findings(self._plan.control)}")

    def run(self, peak: _Peak | None, actions: list[Action]) -> None:
        began = time.monotonic()
        self.go()
        while self.is_working():
            if actions and time.monotonic() - began > actions[0][0]:
                actions.pop(0)[1]()
            if peak is not None:
                peak.sample(list(self.pids()))
            if time.monotonic() - began > self._plan.seconds and not actions:
                self.counters.stop()
            time.sleep(_TICK_SECONDS)

    def _spawn(self, writer: int, index: int) -> BaseProcess:
        client = self._clients[index]
        here = replace(self._plan, directory=client.at(self._plan.scenario))
        return start_process(_work, client, here, writer, self._epoch_us, context=_FORK)


def _work(client: Client, plan: Plan, writer: int, epoch_us: int) -> None:
    enter(client)
    run_worker(plan, writer, writer, epoch_us)
