# SPDX-License-Identifier: Apache-2.0
"""A model of a fleet that starts: nodes of ranks that all want the same kernels, and the server of their file system.

There are four ways to start. The kernel of a real client counted the requests of each operation (:class:`Calls`);
waiters poll as often as the library's do. The model leaves out that processors, local disks and networks may be busy,
and that a server may answer more slowly when it has many files.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockcache.filestream.disk import REMOTE, WOKEN
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.events import Bell, Clock, Server, Steps

#: The result of `lockcache-stress hosts --nfs --scenarios calls,fleet,seed --json-file`, in a guest with Debian's 6.1.
COUNTED: Final = Path(__file__).with_name("fleet.json")

# Requests of a waiter. It looks for an entry by opening a folder and asking for a name; it asks for a lease by opening
# the file, trying its lock, reading and closing it. Both numbers follow from the requests that were counted in a second
# of waiting (2.1 GETATTR; 0.37 LOCK, and 1.6 that come with them), and from how often the library polls.
_LOOK: Final = 1.3
_ASK: Final = 5.4
# Further requests of a wait, whose bell is made, opened and removed. Only this number was fitted, to the guest's first
# start in a shared directory; the other starts check it.
_BELL: Final = 10
# The time of a verified hit of a local directory or bundle, the interpreter's included.
_LOCAL_SECONDS: Final = 15e-6
_FOREVER: Final = 1e9
_FIRST: Final = "shared, first start"
_MANY: Final = "shared, many ranks"
# The largest factor between the requests of the model and those that were counted.
_MOST_OFF: Final = 1.25


@dataclass(frozen=True)
class Calls:
    """Requests to the server that each operation takes; "again": where the node's kernel knows the files already."""

    open: float
    open_again: float
    #: Opening a directory that many processes are making at once.
    open_empty: float
    hit: float
    hit_again: float
    miss: float
    compute: float
    #: Closing by many processes at once, of which one writes the counters and the others write nothing.
    close: float
    #: Copying a bundle to a node, without the reads of the bundle; the next field has the bytes of each read.
    seed: float
    seed_read_bytes: float

    @classmethod
    def counted(cls, trials: Mapping[str, Any]) -> Calls:
        """Returns the requests of each operation, from the counts of trials in a guest.

        A hit of a file that the node knows takes one request while the node has a delegation from the server, else two:
        the model takes the average.
        """
        each, seed, first, many = (
            trials["calls"]["each"],
            trials["seed"],
            trials["fleet"][_FIRST],
            trials["fleet"][_MANY],
        )
        return cls(
            open=each["open"],
            open_again=each["second process opens"],
            open_empty=_each_rank(first, "open"),
            hit=each["cold hit"],
            hit_again=(each["second process hits"] + each["hit again"]) / 2,
            miss=each["miss"],
            compute=each["get_or_compute that computes"],
            close=_each_rank(many, "close"),
            seed=seed["other_requests"],
            seed_read_bytes=seed["bundle_bytes"] / seed["reads"],
        )


def _each_rank(start: Mapping[str, Any], step: str) -> float:
    count: float = start["requests"][step] / (start["nodes"] * start["ranks_per_node"])
    return count


@dataclass(frozen=True)
class Fleet:
    """The ranks that start, their kernels, and the nodes and the server that they start on."""

    calls: Calls
    ranks: int = 64
    ranks_per_node: int = 8
    kernels: int = 300
    kernel_bytes: int = 100_000
    #: The average; a kernel takes between half and one and a half times as long.
    compile_seconds: float = 0.3
    #: The share of the kernels that an earlier job left in the directory, or in the bundle.
    stored: float = 0.0
    #: The time within which a launcher starts all ranks.
    launch_seconds: float = 1.0
    #: Whether each rank asks for the kernels in an order of its own.
    is_shuffled: bool = False
    requests_per_second: float = 20_000
    round_trip_seconds: float = 0.0003
    bytes_per_second: float = 2e9
    seed: int = 0

    @property
    def nodes(self) -> int:
        """Returns the number of nodes that the ranks take."""
        return -(-self.ranks // self.ranks_per_node)


@dataclass(frozen=True)
class Cost:
    """The cost of a start."""

    way: str
    computes: int
    requests: Mapping[str, float]
    sent_bytes: int
    #: The time from the launch until the last rank has all its kernels.
    seconds: float
    #: The waiting time of all ranks together, for which a user pays while no rank trains.
    rank_seconds: float
    busy_seconds: float

    def as_json(self) -> dict[str, Any]:
        """Returns plain values, requests as whole numbers."""
        requests = {name: round(count) for name, count in self.requests.items()}
        return {**vars(self), "requests": requests, "all_requests": round(sum(self.requests.values()))}


class _Start:
    """One start in one way."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.clock = Clock()
        self.server = Server(self.clock, fleet.requests_per_second, fleet.round_trip_seconds, fleet.bytes_per_second)
        rng = random.Random(f"{fleet.seed}/kernels")
        self.compile_seconds = [fleet.compile_seconds * rng.uniform(0.5, 1.5) for _ in range(fleet.kernels)]
        stored = rng.sample(range(fleet.kernels), round(fleet.stored * fleet.kernels))
        #: The kernels that are published in the shared directory, or are in the bundle.
        self.published = set(stored)
        #: The kernels of each node: files whose names and bytes the node's kernel knows, and entries of its directory.
        self.known: list[set[int]] = [set() for _ in range(fleet.nodes)]
        self.local: list[set[int]] = [set() for _ in range(fleet.nodes)]
        # The node of the rank that compiles each kernel; and the bell on a node that rings when a kernel is there.
        self.holders: dict[int, int] = {}
        self.bells: dict[tuple[int, int], Bell] = {}
        self.opened: set[int] = set()
        self.computes = 0
        self.ended: list[float] = []

    def bell(self, node: int, kernel: int) -> Bell:
        return self.bells.setdefault((node, kernel), Bell())

    def run(self, way: str) -> Cost:
        fleet = self.fleet
        for number in range(fleet.ranks):
            rng = random.Random(f"{fleet.seed}/{number}")
            begin = rng.uniform(0, fleet.launch_seconds)
            kernels = list(range(fleet.kernels))
            if fleet.is_shuffled:
                rng.shuffle(kernels)
            self.clock.start(self._rank(WAYS[way], number // fleet.ranks_per_node, kernels, rng), begin)
        self.clock.run()
        server = self.server
        rank_seconds = sum(self.ended)
        return Cost(
            way,
            self.computes,
            dict(server.requests),
            server.sent_bytes,
            max(self.ended),
            rank_seconds,
            server.busy_seconds,
        )

    def _rank(self, way: _Way, node: int, kernels: list[int], rng: random.Random) -> Steps:
        yield from way(self, node, kernels, rng)
        self.ended.append(self.clock.now)

    def open(self, node: int) -> float:
        calls = self.fleet.calls
        if not self.fleet.stored:
            return self.server.ask("open", calls.open_empty)
        is_first = node not in self.opened
        self.opened.add(node)
        return self.server.ask("open", calls.open if is_first else calls.open_again)

    def hit(self, node: int, kernel: int) -> float:
        calls, known = self.fleet.calls, self.known[node]
        if kernel in known:
            return self.server.ask("hit", calls.hit_again)
        known.add(kernel)
        return self.server.ask("hit", calls.hit, self.fleet.kernel_bytes)

    def get(self, node: int, kernel: int, rng: random.Random) -> Steps:
        """Ask the shared directory for a kernel: a hit, a wait, or the rank's turn to compile it."""
        if kernel not in self.published:
            yield self.server.ask("miss", self.fleet.calls.miss)
            yield self.server.ask("ask", _ASK + _LOOK)
        if kernel not in self.published and kernel not in self.holders:
            yield from self._compute(node, kernel)
            return
        if kernel not in self.published:
            yield from self._wait(node, kernel, rng)
        yield self.hit(node, kernel)

    def _compute(self, node: int, kernel: int) -> Steps:
        self.holders[kernel] = node
        self.computes += 1
        yield self.compile_seconds[kernel]
        asked = self.fleet.calls.miss + _ASK + _LOOK
        yield self.server.ask("store", max(self.fleet.calls.compute - asked, 1), self.fleet.kernel_bytes)
        self.published.add(kernel)
        self.known[node].add(kernel)
        self.clock.ring(self.bell(node, kernel))

    def _wait(self, node: int, kernel: int, rng: random.Random) -> Steps:
        """Look for the entry, and ask for the lease, as often as the library; on the holder's node the bell wakes."""
        is_woken = self.holders[kernel] == node
        pace, bell = (WOKEN if is_woken else REMOTE), self.bell(node, kernel)
        clock, began = self.clock, self.clock.now
        yield self.server.ask("bell", _BELL)
        while kernel not in self.published:
            ask_at = clock.now + pace.ask_after(clock.now - began)
            while kernel not in self.published and clock.now < ask_at:
                yield self.server.ask("look", _LOOK)
                pause = min(pace.look_after(clock.now - began) * rng.uniform(0.5, 1), ask_at - clock.now)
                if kernel not in self.published and pause > 0:
                    yield (pause, bell) if is_woken else pause
            yield self.server.ask("look", _LOOK)
            if kernel not in self.published:
                yield self.server.ask("ask", _ASK + _LOOK)

    def get_on_node(self, node: int, kernel: int) -> Steps:
        """Ask the node's own directory, of which the server knows nothing."""
        local, key = self.local[node], (node, kernel)
        if kernel not in local and key not in self.bells:
            bell = self.bell(node, kernel)
            self.computes += 1
            yield self.compile_seconds[kernel]
            local.add(kernel)
            self.clock.ring(bell)
        while kernel not in local:
            yield _FOREVER, self.bell(node, kernel)


_Way = Callable[[_Start, int, list[int], random.Random], Steps]


def _compile_each(start: _Start, node: int, kernels: list[int], rng: random.Random) -> Steps:
    start.computes += len(kernels)
    yield sum(start.compile_seconds[kernel] for kernel in kernels)


def _share(start: _Start, node: int, kernels: list[int], rng: random.Random) -> Steps:
    yield start.open(node)
    for kernel in kernels:
        yield from start.get(node, kernel, rng)
    yield start.server.ask("close", start.fleet.calls.close)


def _share_and_keep(start: _Start, node: int, kernels: list[int], rng: random.Random) -> Steps:
    yield start.open(node)
    local, read = start.local[node], 0
    for kernel in kernels:
        if kernel in local:
            read += 1  # hits that follow each other are one event, because no other process is concerned
            continue
        if read:
            yield read * _LOCAL_SECONDS
            read = 0
        yield from start.get(node, kernel, rng)
        local.add(kernel)
    yield read * _LOCAL_SECONDS
    yield start.server.ask("close", start.fleet.calls.close)


def _seed_nodes(start: _Start, node: int, kernels: list[int], rng: random.Random) -> Steps:
    seeded = start.bell(node, -1)
    if start.published and node not in start.opened:
        start.opened.add(node)
        bundle_bytes = len(start.published) * start.fleet.kernel_bytes
        calls = start.fleet.calls
        yield start.server.ask("bundle", calls.seed + math.ceil(bundle_bytes / calls.seed_read_bytes), bundle_bytes)
        start.local[node] |= start.published
        start.clock.ring(seeded)
    while start.published and not start.local[node]:
        yield _FOREVER, seeded
    for kernel in kernels:
        yield from start.get_on_node(node, kernel)
    yield len(kernels) * _LOCAL_SECONDS


#: The ways to start, by name: each is the program of a rank in the model.
WAYS: Final[Mapping[str, _Way]] = {
    "each compiles": _compile_each,
    "one directory": _share,
    "with node-local": _share_and_keep,
    "bundle per node": _seed_nodes,
}


def run_start(fleet: Fleet, way: str) -> Cost:
    """Returns the cost of a start, which is the same for the same fleet."""
    return _Start(fleet).run(way)


def load_counts(path: str | Path = COUNTED) -> dict[str, Any]:
    """Returns the counts of trials in a guest, by trial. Raises :class:`UnusableError`, and :class:`OSError`."""
    try:
        with open(path) as file:
            trials = {trial["trial"]: trial["numbers"] for trial in json.load(file)["trials"]}
        Calls.counted(trials)
    except (ValueError, TypeError, KeyError) as error:
        how = "lockcache-stress hosts --nfs --scenarios calls,fleet,seed --json-file"
        raise UnusableError(f"{path} holds no counts ({error!r}); {how} writes such a file") from error
    return trials


#: The way of each start in the guest, and whether an earlier start had left the kernels.
_IN_THE_GUEST: Final = {
    _FIRST: ("one directory", 0.0),
    "shared, next start": ("one directory", 1.0),
    "both, first start": ("with node-local", 0.0),
    "both, next start": ("with node-local", 1.0),
    _MANY: ("one directory", 1.0),
}


def compare(trials: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Returns the requests of each start in the guest, by its counts and by the model.

    The model's server answers as many requests in a second as the guest's did when it was busiest, because the number
    of polls depends on this rate.
    """
    starts = [trials["fleet"][name] for name in _IN_THE_GUEST]
    rate = max(start["requests"]["kernels"] / start["seconds"] for start in starts)
    found = {}
    for name, (way, stored) in _IN_THE_GUEST.items():
        counted = trials["fleet"][name]
        asked = counted["requests"]
        fleet = Fleet(
            calls=Calls.counted(trials),
            ranks=counted["nodes"] * counted["ranks_per_node"],
            ranks_per_node=counted["ranks_per_node"],
            kernels=counted["kernels"],
            kernel_bytes=20_000,
            compile_seconds=0.3,
            stored=stored,
            launch_seconds=0.01,
            requests_per_second=rate,
        )
        found[name] = (sum(asked.values()), round(sum(run_start(fleet, way).requests.values())))
    return found


def is_near(counted: int, model: int) -> bool:
    """Returns whether the requests of the model are near enough to those that were counted."""
    return 1 / _MOST_OFF <= model / counted <= _MOST_OFF
