# SPDX-License-Identifier: Apache-2.0
"""One node of the scenario ``checked``: processes that come, store, read, delete, and end or are killed.

Started as a program, with the plan's file and the node's number. Each process uses two directories, one that never
evicts and one with a small cap, with one server behind both, and leaves a file of what it did and found.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from typing import Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments.remote.promises import (
    KeyState,
    Value,
    as_bytes,
    fault_of,
    held_state,
    note_state,
    read_state,
)

__all__ = ["PROCESSES", "main"]

#: At once on each node.
PROCESSES: Final = 3
_KEYS: Final = 12
_SMALL_BYTES: Final = 50_000
# A process has a second of patience for its server, and then goes on without it: others come in its place.
_LIFE_SECONDS: Final = 1.5
_KILLED: Final = 0.2
_SIZES: Final = (1_500, 1_500, 6_000, 40_000)


class _Process:
    """One process of a node."""

    def __init__(self, plan: dict[str, Any], node: int, seed: int) -> None:
        self._plan, self._node, self._draw = plan, node, random.Random(seed)
        self._writer = f"{node}-{os.getpid()}-{seed}"
        self._caches = {
            "roomy": FileStreamProgramCache(f"{plan['directory']}/{node}-roomy"),
            "small": FileStreamProgramCache(f"{plan['directory']}/{node}-small", max_size_bytes=_SMALL_BYTES),
        }
        self._own: dict[str, Value] = {}
        self._offers: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def work(self, seconds: float) -> None:
        """Store, read and delete, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            kind = self._draw.choice(tuple(self._caches))
            key = f"{kind} {self._draw.randrange(_KEYS)}"
            act = self._draw.choices((self._read, self._store, self._delete), (9, 7, 2))[0]
            act(kind, key)

    def _state_path(self, key: str) -> str:
        return f"{self._plan['directory']}/state-{self._node}-{key}"

    def _read(self, kind: str, key: str) -> None:
        cache, path = self._caches[kind], self._state_path(key)
        server = cache._backing.store.counts  # type: ignore[union-attr]
        before, hits = read_state(path), server.hits
        code = cache.get(key)
        is_of_server, after = server.hits > hits, read_state(path)
        self.counts["reads"] += 1
        if code is None:
            self.counts["misses"] += 1
            return
        self.counts["hits of the server"] += is_of_server
        fault = fault_of(
            code, key, self._node, before, after, evicts=kind == "small", own=self._own.get(key), writer=self._writer,
            is_of_server=is_of_server,
        )  # fmt: skip
        if fault:
            self.faults.append(f"{fault}: {key} on {self._node}, {code[:60]!r}, {before} {after}")

    def _store(self, kind: str, key: str) -> None:
        cache = self._caches[kind]
        with held_state(self._state_path(key)) as (state, fd):
            value = Value(key, self._node, state.begun + 1, self._writer)
            note_state(fd, state._replace(begun=value.version))
            dropped = cache.stats().dropped_writes
            self._own[key] = value
            self._offers[kind] += 1
            cache[key] = as_bytes(value, self._draw.choice(_SIZES))
            was_dropped = cache.stats().dropped_writes > dropped
            stored = 0 if was_dropped else value.version
            note_state(fd, KeyState(value.version, stored, state.removals + was_dropped))
        self.counts["writes"] += 1

    def _delete(self, kind: str, key: str) -> None:
        with held_state(self._state_path(key)) as (state, fd):
            note_state(fd, KeyState(state.begun, 0, state.removals + 1))
            try:
                del self._caches[kind][key]
            except KeyError:
                return
        self.counts["deletions"] += 1

    def flush(self) -> None:
        """Send what waits; count what was lost, and what is neither sent nor lost."""
        for kind, cache in self._caches.items():
            server = cache._backing.store  # type: ignore[union-attr]
            server.flush()
            self.counts["sent"] += server.counts.puts
            self.counts["lost"] += server.counts.lost_puts
            self.counts["uncounted"] += self._offers[kind] - server.counts.puts - server.counts.lost_puts

    def leave(self, name: str) -> None:
        """Leave a file of what was found."""
        folder = self._plan["directory"]
        with open(f"{folder}/new-{name}", "w") as file:  # half of one that is killed here is not looked for
            json.dump({"counts": self.counts, "faults": self.faults[:20]}, file)
        os.rename(f"{folder}/new-{name}", f"{folder}/found-{name}")


def _child(plan: dict[str, Any], node: int, seed: int, *, is_last: bool) -> None:
    process = _Process(plan, node, seed)
    process.work(_LIFE_SECONDS)
    process.flush()
    process.leave(f"{node}-{seed}")
    if is_last:  # stays open: its threads must have nothing to send any more
        open(f"{plan['directory']}/last-{node}-{seed}", "w").close()
        while not os.path.exists(f"{plan['directory']}/leave"):
            time.sleep(0.02)


def _fork(plan: dict[str, Any], node: int, seed: int, *, is_last: bool) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _child(plan, node, seed, is_last=is_last)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def main(path: str, node: int) -> int:
    """Run the node until the plan's end. Returns the number of processes that failed."""
    with open(path) as file:
        plan = json.load(file)
    draw, seed, failed = random.Random(plan["seed"] * 7 + node), 0, 0
    until = time.monotonic() + plan["seconds"]
    while True:
        is_last = time.monotonic() > until
        pids = {}
        for _ in range(PROCESSES):
            seed += 1
            pids[_fork(plan, node, seed, is_last=is_last)] = not is_last and draw.random() < _KILLED
        if any(pids.values()):
            time.sleep(draw.random() * _LIFE_SECONDS)
        for pid, is_killed in pids.items():
            if is_killed:
                os.kill(pid, signal.SIGKILL)
            failed += os.waitpid(pid, 0)[1] != 0 and not is_killed
        if is_last:
            return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
