# SPDX-License-Identifier: Apache-2.0
"""The protocol as a model: page, names, locks, leases and death, in states that can be compared.

One shard, two keys, entries of one block, up to three processes. Steps are named as in the kill table; a step is one
call, or a look and what follows from it. A process may die in front of each step: its locks fall, and what it staged
and reserved stays. A fault leaves a step out, or makes it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

LOCK, UNLOCK = "lock_descriptor(locks/SHARD)", "unlock_descriptor(locks/SHARD)"
READ, PAGE = "pread(state)", "pwrite(state)"
STAGE, WRITE, DROP = "open(tmp/STAGED)", "write(tmp/STAGED)", "unlink(tmp/STAGED)"
RENAME, UNLINK = "rename(tmp/STAGED, entries/SHARD/NAME)", "unlink(entries/SHARD/NAME)"
LEASE, GIVE_BACK = "lock_descriptor(leases/NAME)", "unlink(leases/NAME)"
CAP, DEATH, REFUSED = "pwrite(state, cap)", "SIGKILL", "refused"

_FREE: Final = -1
#: Faults that the model can express.
FAULTS: Final = (
    "rename-first",
    "no-reservation",
    "no-lock-in-publish",
    "slot-without-lock",
    "lease-back-first",
    "credited-twice",
    "no-owner-check",
    "policy-once",
    "sum-first",
    "count-without-lock",
    "lease-kept",
)
#: What a process does: a put of one of two keys, a computation under a lease, a removal, a recount, a smaller cap.
PROGRAMS: Final = ("put", "put other", "lease", "remove", "recount", "policy")


class Process(NamedTuple):
    """One process: where it stands, and what it has in mind."""

    at: str
    #: The slot as it read it, and what it will write is that and so much more.
    read: int = 0
    change: int = 0
    #: Where it goes after the slot is written.
    then: str = ""
    #: The cap, or the sum, that it saw first: for faults.
    seen: int = -1
    is_dead: bool = False


class State(NamedTuple):
    """A state of the directory, and of all processes."""

    processes: tuple[Process, ...]
    lock: int
    page: int
    cap: int
    #: By key: 0 for none, 1 for a whole entry, -1 for one without its bytes.
    entries: tuple[int, int]
    #: By process: 0 for no staged file, 1 for an empty one, 2 for one with its bytes.
    staged: tuple[int, ...]
    #: The holder of the lease of the first key, and how many computed it.
    lease: int
    computed: int
    deaths_left: int

    @property
    def disk(self) -> int:
        """The blocks that entries and staged files take."""
        return sum(map(bool, self.entries)) + sum(size == 2 for size in self.staged)


class Model(NamedTuple):
    """Programs that run at once, with the fault that all of them have."""

    programs: tuple[str, ...]
    cap: int = 2
    entries: tuple[int, int] = (0, 0)
    deaths: int = 1
    fault: str = ""

    def first(self) -> State:
        """Returns the state in which all begin."""
        begin = "peek" if self.fault in ("sum-first", "policy-once") else "begin"
        at = {"lease": "ask", "policy": "lower", "put": begin, "put other": begin}
        processes = tuple(Process(at.get(each, "begin")) for each in self.programs)
        empty = tuple(0 for _ in processes)
        return State(processes, _FREE, sum(self.entries), self.cap, self.entries, empty, _FREE, 0, self.deaths)

    def key(self, number: int) -> int:
        """Returns the key of a process."""
        return int(self.programs[number] == "put other")

    def steps(self, state: State) -> Iterator[tuple[int, str, State]]:
        """Yields every step that can be made: the process, its name, and the state behind it."""
        for number, process in enumerate(state.processes):
            if process.is_dead or process.at == "done":
                continue
            yield from ((number, name, after) for name, after in self._of(state, number, process))
            if state.deaths_left:
                yield number, DEATH, _die(state, number)

    def _of(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        at = process.at
        if at in _LOCKS:
            if self.fault == "no-lock-in-publish" and at == "written":
                yield LOCK, _moved(state, number, _LOCKS[at])
            elif state.lock == _FREE:
                yield LOCK, _moved(state, number, _LOCKS[at])._replace(lock=number)
            elif at == "evict":
                yield REFUSED, _moved(state, number, "sum")
        elif at in _UNLOCKS:
            lock = _FREE if state.lock == number else state.lock
            yield UNLOCK, _moved(state, number, self._after_unlock(at, number))._replace(lock=lock)
        elif at == "change":
            yield READ, _set(state, number, process._replace(at="write back", read=state.page))
        elif at == "write back":
            after = _set(state, number, process._replace(at=process.then))
            yield PAGE, after._replace(page=max(0, process.read + process.change))
        else:
            yield from getattr(self, f"_{_METHODS[at]}")(state, number, process)

    def _after_unlock(self, at: str, number: int) -> str:
        if at == "published":
            return "give back" if self.programs[number] == "lease" else "done"
        if at == "staged unlocked":
            return "reserve late"
        return _UNLOCKS[at]

    def _stage(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        program = self.programs[number]
        if program == "remove":
            if state.entries[0]:
                yield UNLINK, _change(_entry(state, 0, 0), number, -1, "free")
            else:
                yield "access(entries/SHARD/NAME)", _moved(state, number, "free")
            return
        if program == "recount":
            staged = tuple(0 for _ in state.staged) if self.fault == "no-owner-check" else _of_living(state)
            counted = sum(map(bool, state.entries)) + sum(map(bool, staged))
            counted = process.seen if self.fault == "count-without-lock" else counted
            yield PAGE, _moved(state, number, "free")._replace(staged=staged, page=counted)
            return
        after = _staged(state, number, 1)
        if self.fault == "no-reservation":
            yield STAGE, _moved(after, number, "reserved")
        elif self.fault == "slot-without-lock":
            yield STAGE, _moved(after, number, "staged unlocked")
        else:
            yield STAGE, _change(after, number, 1, "reserved")

    def _peek(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        seen = state.page if self.fault == "sum-first" else state.cap
        yield READ, _set(state, number, process._replace(at="begin", seen=seen))

    def _reserve_late(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        yield READ, _set(state, number, process._replace(at="write back", read=state.page, change=1, then="sum"))

    def _sum(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        cap = process.seen if self.fault == "policy-once" and process.seen >= 0 else state.cap
        total = process.seen + 1 if self.fault == "sum-first" and process.seen >= 0 else state.page
        if total > cap:
            seen = _FREE if self.fault == "sum-first" else process.seen
            yield READ, _set(state, number, process._replace(at="evict", seen=seen))
        elif self.programs[number] == "policy":
            yield READ, _moved(state, number, "done")
        else:
            yield READ, _moved(state, number, "written" if self.fault == "rename-first" else "room")

    def _evict(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        for key, entry in enumerate(state.entries):
            if entry:
                yield UNLINK, _change(_entry(state, key, 0), number, -1, "evicted")
        if any(state.entries):
            return
        # What the dead hold, and what their deaths left too much, is counted again before a write gives up.
        staged = _of_living(state)
        counted = sum(map(bool, staged))
        if counted != state.page:
            yield PAGE, _moved(state, number, "evicted")._replace(staged=staged, page=counted)
        else:
            # The rest is being written by others, who make room for themselves.
            yield (
                "scandir(entries/SHARD)",
                _moved(state, number, "free" if self.programs[number] == "policy" else "nothing"),
            )

    def _write(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        yield WRITE, _moved(_staged(state, number, 2), number, "written")

    def _rename(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        key, size = self.key(number), state.staged[number]
        if not size:  # a reaper took it for a dead owner's
            yield "rename fails", _moved(state, number, "lost")
            return
        replaced = bool(state.entries[key])
        change = -2 * replaced if self.fault == "credited-twice" else -int(replaced)
        after = _entry(_staged(state, number, 0), key, 1 if size == 2 else -1)
        yield RENAME, _change(after, number, change, "published")

    def _drop(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        was_there = bool(state.staged[number])
        yield DROP, _change(_staged(state, number, 0), number, -int(was_there), "dropped")

    def _ask(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if state.entries[0]:
            yield "open(entries/SHARD/NAME)", _moved(state, number, "done")
        elif state.lease == _FREE:
            yield LEASE, _moved(state, number, "look")._replace(lease=number)

    def _look(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if state.entries[0]:
            yield "access(entries/SHARD/NAME)", _moved(state, number, "give back")
            return
        after = _moved(state, number, "begin")._replace(computed=state.computed + 1)
        if self.fault == "lease-back-first":
            after = after._replace(lease=_FREE)
        yield "compute", after

    def _give_back(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        is_kept = self.fault == "lease-kept" or state.lease != number
        yield GIVE_BACK, _moved(state, number, "done")._replace(lease=state.lease if is_kept else _FREE)

    def _lower(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        yield CAP, _moved(state, number, "sum")._replace(cap=state.cap - 1)


# Where a process waits for the lock, and where it is with it.
_LOCKS: Final = {"begin": "locked", "evict": "evicting", "give up": "giving", "written": "publishing"}
# Where it gives the lock back, and where it is without it.
_UNLOCKS: Final = {
    "reserved": "sum",
    "evicted": "sum",
    "nothing": "give up",
    "dropped": "begin",
    "published": "done",
    "free": "done",
    "lost": "begin",
    "staged unlocked": "reserve late",
}
_METHODS: Final = {
    "locked": "stage",
    "reserve late": "reserve_late",
    "sum": "sum",
    "evicting": "evict",
    "room": "write",
    "publishing": "rename",
    "giving": "drop",
    "peek": "peek",
    "ask": "ask",
    "look": "look",
    "give back": "give_back",
    "lower": "lower",
}


def _set(state: State, number: int, process: Process) -> State:
    return state._replace(processes=(*state.processes[:number], process, *state.processes[number + 1 :]))


def _moved(state: State, number: int, at: str) -> State:
    return _set(state, number, state.processes[number]._replace(at=at))


def _change(state: State, number: int, change: int, then: str) -> State:
    """Have a process add to the slot next: it reads it, and writes it back."""
    return _set(state, number, state.processes[number]._replace(at="change", change=change, then=then))


def _entry(state: State, key: int, entry: int) -> State:
    entries = (entry, state.entries[1]) if key == 0 else (state.entries[0], entry)
    return state._replace(entries=entries)


def _staged(state: State, number: int, size: int) -> State:
    return state._replace(staged=(*state.staged[:number], size, *state.staged[number + 1 :]))


def _of_living(state: State) -> tuple[int, ...]:
    return tuple(0 if its.is_dead else size for its, size in zip(state.processes, state.staged, strict=True))


def _die(state: State, number: int) -> State:
    after = _set(
        state, number, state.processes[number]._replace(at="dead", is_dead=True, read=0, change=0, then="", seen=-1)
    )
    lock = _FREE if state.lock == number else state.lock
    lease = _FREE if state.lease == number else state.lease
    return after._replace(lock=lock, lease=lease, deaths_left=state.deaths_left - 1)
