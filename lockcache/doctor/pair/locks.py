# SPDX-License-Identifier: Apache-2.0
"""Locks: whether one that a process of one host holds keeps out the other host, and is free once its holder is dead.

And exclusive creation, which staged files and leases rest on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from lockcache.doctor.checks_process import Child
from lockcache.doctor.findings import DEGRADED, GOOD, UNUSABLE, Finding
from lockcache.doctor.pair.messages import Numbers
from lockcache.doctor.pair.trial import Side, Trial, span_of, worst
from lockcache.doctor.second_process import create_each
from lockcache.doctor.sharing import (
    DROPPED_WRITES,
    LOCAL_DIRECTORY,
    MEETING_FILES,
    MOUNT_WITH_LOCKS,
    SHARED_LOCKS,
    STUCK_LOCKS,
    WITHOUT_LOCKS,
)
from lockcache.filestream.disk import BY_PATH

# ---- locks -----------------------------------------------------------------------------------------------------------


class _Process:
    """A process that takes and releases the lock."""

    def __init__(self, side: Side) -> None:
        self._child = Child("lockcache.doctor.second_process", own_group=False)
        self._folder, self._path = side.path, side.at("lock")
        self._limit_seconds = side.link.timeout_seconds
        self._has_it = False
        #: Whether the file system refused to lock at all.
        self.is_refused = False

    def start(self) -> None:
        """Start now, while the other host starts its own. Without a look at the lock, which is not made yet."""
        self._ask("is there", self._folder)

    def take(self) -> bool:
        answer = self._ask("lock")
        self.is_refused |= isinstance(answer, str)
        self._has_it = answer is True
        return self._has_it

    def release(self) -> None:
        if self._has_it:
            self._ask("unlock")
            self._has_it = False

    def try_once(self) -> bool:
        """Take and release the lock. Returns whether it could be taken."""
        is_free = self.take()
        self.release()
        return is_free

    def kill(self) -> None:
        self._child.end()

    def _ask(self, do: str, path: str = "") -> Any:
        return self._child.ask({"do": do, "path": path or self._path}, self._limit_seconds)


@contextlib.contextmanager
def _process(side: Side) -> Iterator[_Process]:
    process = _Process(side)
    try:
        yield process
    finally:
        process.kill()


def _hold(side: Side) -> Numbers:
    with _process(side) as holder:
        is_taken = holder.take()
        side.sync()
        side.sync()  # the other host tried
        holder.release()
        side.sync()
        side.sync()  # the other host tried again, and released it
        holder.take()
        side.sync()
        side.sync()  # the other host tried once more
        holder.kill()
        side.sync()
        return {"taken": is_taken, "refused": holder.is_refused}


def _contend(side: Side) -> Numbers:
    with _process(side) as contender:
        contender.start()
        side.sync()
        excluded = not contender.try_once()
        side.sync()
        side.sync()
        released = side.watch(released=contender.try_once)
        side.sync()
        side.sync()
        excluded &= not contender.try_once()
        side.sync()
        side.sync()
        freed = side.watch(freed=contender.try_once)
        return {**released, **freed, "excluded": excluded, "refused": contender.is_refused}


def _judge_locks(seen: list[Numbers]) -> Finding:
    measured = {"released_us": worst(seen, "released"), "freed_us": worst(seen, "freed")}
    if any(numbers.get("refused") for numbers in seen):
        found = "this file system refuses to lock"
        return Finding("locks", UNUSABLE, found, DROPPED_WRITES, MOUNT_WITH_LOCKS, measured)
    excluding = sum(bool(numbers.get("excluded")) for numbers in seen)
    if excluding < 2:
        found = "both hosts hold the same exclusive lock" + (" when the first takes it first" if excluding else "")
        return Finding("locks", DEGRADED, found, WITHOUT_LOCKS, SHARED_LOCKS, measured)
    stuck = {name: words for name, words in _STUCK.items() if measured[f"{name}_us"] < 0}
    if stuck:
        limit = span_of(max(numbers.get("limit_us", 0) for numbers in seen))
        found = f"the lock {' and '.join(stuck.values())} is not free for the other host after {limit}"
        advice = "see to the lock server, or use a node-local directory"
        return Finding("locks", DEGRADED, found, STUCK_LOCKS, advice, measured)
    freed = f"released it is free after {span_of(measured['released_us'])}, its holder killed after "
    found = f"exclude the other host, both ways; {freed}{span_of(measured['freed_us'])}"
    return Finding("locks", GOOD, found, measured=measured)


_STUCK: Final = {"released": "that was released", "freed": "of a killed process"}

# ---- exclusive creation ----------------------------------------------------------------------------------------------

# So that a bit for each fits into a number.
_RACES: Final = 48


def _race(side: Side, mine: str) -> Numbers:
    for number in range(_RACES):
        side.is_there(f"exclusive/{number}")  # a client may go by what it remembers: that they are missing
    side.sync()
    made = create_each([side.at(f"exclusive/{number}") for number in range(_RACES)])
    return {mine: sum((outcome == "made") << number for number, outcome in enumerate(made))}


def _create_first(side: Side) -> Numbers:
    BY_PATH.make_folder(side.at("exclusive"))
    side.sync()
    return _race(side, "acting")


def _create_too(side: Side) -> Numbers:
    side.sync()
    return _race(side, "observing")


def _judge_creation(seen: list[Numbers]) -> Finding:
    everyone = (1 << _RACES) - 1
    pairs = [(numbers.get("acting", 0) & everyone, numbers.get("observing", 0) & everyone) for numbers in seen]
    both = sum((one & other).bit_count() for one, other in pairs)
    neither = sum((everyone & ~(one | other)).bit_count() for one, other in pairs)
    measured = {"races": len(seen) * _RACES, "both": both, "neither": neither}
    if not both and not neither:
        found = f"{len(seen) * _RACES} races of the two hosts, one winner each"
        return Finding("exclusive creation", GOOD, found, measured=measured)
    found = f"of {len(seen) * _RACES} files {both} were made by both hosts, {neither} by neither"
    return Finding("exclusive creation", DEGRADED, found, MEETING_FILES, LOCAL_DIRECTORY, measured)


LOCKS: Final = Trial(_hold, _contend, _judge_locks)
CREATION: Final = Trial(_create_first, _create_too, _judge_creation)
