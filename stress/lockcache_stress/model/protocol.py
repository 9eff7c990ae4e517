# SPDX-License-Identifier: Apache-2.0
"""The protocol as a model: page, names, locks, leases and death, in states that can be compared.

Keys in shards, entries of one block, a few processes. Steps are named as in the kill table; a step is one call, or
a look and what follows from it (:data:`SILENT`). A process may die in front of each step: its locks fall, and what it
staged and reserved stays. Where the code chooses (which entry to evict, when to give its room back), the model may
do each. A fault leaves a step out, or makes it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

from lockcache_stress.model.parts import (
    CAP,
    COMPUTE,
    DEATH,
    DROP,
    FREE,
    GIVE_BACK,
    LEASE,
    LEAVE,
    LET_GO,
    LIST,
    LOCK,
    LOOK,
    LOST,
    NOTE,
    OPEN,
    PAGE,
    READ,
    RENAME,
    STAGE,
    UNLINK,
    UNLOCK,
    WRITE,
    Process,
    Program,
    Slot,
    State,
)

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

Steps: TypeAlias = "Iterator[tuple[str, int, State]]"


class Model(NamedTuple):
    """Programs that run at once, with the fault that all of them have."""

    programs: tuple[Program, ...]
    cap: int = 2
    #: By key: how many entries there are in the beginning, none or one; and its shard.
    entries: tuple[int, ...] = (0, 0)
    shards: tuple[int, ...] = (0, 0)
    deaths: int = 1
    fault: str = ""

    def first(self) -> State:
        """Returns the state in which all begin."""
        processes, staged = tuple(map(self._beginning, self.programs)), [2 * (p.kind == "dead") for p in self.programs]
        page = [Slot()] * (max(self.shards) + 1)
        for key, entry in enumerate(self.entries):
            page[self.shards[key]] = page[self.shards[key]].plus(entry, entry)
        for number, size in enumerate(staged):
            page[self.shard(number)] = page[self.shard(number)].plus(bool(size), 0)
        locks = (FREE,) * len(page)
        return State(processes, locks, tuple(page), self.cap, self.entries, tuple(staged), FREE, False, 0, self.deaths)

    def _beginning(self, program: Program) -> Process:
        if program.kind == "dead":
            return Process("dead", is_dead=True)
        at = _BEGIN.get(program.kind, program.kind)
        return Process("peek" if (at, self.fault) in _PEEKS else at)

    def shard(self, number: int) -> int:
        """Returns the shard of a process's key."""
        return self.shards[self.programs[number].key]

    def steps(self, state: State) -> Iterator[tuple[int, str, State]]:
        """Yields every step that can be made: the process, its name, and the state behind it."""
        for number, process in enumerate(state.processes):
            if process.is_dead or process.at == "done":
                continue
            for name, _, after in self.steps_of(state, number):
                yield number, name, after
            if state.deaths_left:
                yield number, DEATH, self.die(state, number)

    def steps_of(self, state: State, number: int) -> Steps:
        """Yields the steps of one process, but its death: the name, the shard, key or process it is on, the state."""
        process = state.processes[number]
        method = _METHODS.get(process.at)
        if method is not None:
            yield from getattr(self, method)(state, number, process)

    def die(self, state: State, number: int) -> State:
        """Returns the state behind the death of a process."""
        after = _set(state, number, Process("dead", is_dead=True))
        locks = tuple(FREE if lock == number else lock for lock in state.locks)
        lease = FREE if state.lease == number else state.lease
        return after._replace(locks=locks, lease=lease, deaths_left=state.deaths_left - 1)

    # The lock of a shard, and the slot under it.

    def _lock(self, state: State, number: int, shard: int, then: str) -> Steps:
        """Take a shard's lock, if nobody has it."""
        skips = self.fault == "no-lock-in-publish" and then == "publishing"
        if state.locks[shard] == FREE or skips:
            after = _set(state, number, state.processes[number]._replace(at="unread", then=then, shard=shard))
            yield LOCK, shard, after if skips else after._replace(locks=_with(state.locks, shard, number))

    def _begin(self, state: State, number: int, process: Process) -> Steps:
        yield from self._lock(state, number, self.shard(number), _LOCKED[process.at])

    def _read(self, state: State, number: int, process: Process) -> Steps:
        then = "sum" if process.then == "account" else ""
        slot = state.page[process.shard]
        if process.then == "publishing" and process.limit != state.cap:  # by this one there may be no room for it
            yield READ, 0, _set(state, number, process._replace(at="again", read=slot))
            return
        yield READ, 0, _set(state, number, process._replace(at=process.then, then=then, read=slot))

    def _again(self, state: State, number: int, process: Process) -> Steps:
        """Read the sum under the shard's lock, since the cap is another one than that by which there was room."""
        at, then = ("unlock", "lowered") if state.accounted > state.cap else ("publishing", "")
        yield READ, 0, _set(state, number, process._replace(at=at, then=then))

    def _account(self, state: State, number: int, process: Process) -> Steps:
        slot = process.read.plus(process.blocks, process.entries)
        is_held = state.locks[process.shard] == number
        after = process._replace(at="unlock") if is_held else _gone_on(process)
        page = _with(state.page, process.shard, slot)
        yield PAGE, process.shard, _set(state, number, after)._replace(page=page)

    def _unlock(self, state: State, number: int, process: Process) -> Steps:
        shard = process.shard
        locks = _with(state.locks, shard, FREE) if state.locks[shard] == number else state.locks
        after = _gone_on(process)
        if process.then == "unread":  # a fault: the slot is changed without the lock
            after = Process("unread", "account", shard, blocks=1)
        yield UNLOCK, shard, _set(state, number, after)._replace(locks=locks)

    # A put.

    def _peek(self, state: State, number: int, process: Process) -> Steps:
        """Look at what is to be looked at later: a fault."""
        if self.fault == "count-without-lock":
            seen = self._counted(state, self.shard(number)).blocks
            yield LIST, 0, _set(state, number, process._replace(at="recount", seen=seen))
        else:
            seen = state.accounted if self.fault == "sum-first" else state.cap
            yield READ, 0, _set(state, number, process._replace(at="put", seen=seen))

    def _stage(self, state: State, number: int, process: Process) -> Steps:
        after = state._replace(staged=_with(state.staged, number, 1))
        if self.fault == "no-reservation":
            yield STAGE, number, _set(after, number, process._replace(at="unlock", then="sum"))
        elif self.fault == "slot-without-lock":
            yield STAGE, number, _set(after, number, process._replace(at="unlock", then="unread"))
        else:
            yield STAGE, number, _set(after, number, process._replace(at="account", then="sum", blocks=1))

    def _sum(self, state: State, number: int, process: Process) -> Steps:
        cap = process.seen if self.fault == "policy-once" and process.seen >= 0 else state.cap
        total = process.seen + 1 if self.fault == "sum-first" and process.seen >= 0 else state.accounted
        if self.programs[number].kind in ("put", "lease") and cap < process.limit:
            yield READ, 0, _set(state, number, Process("lowered"))  # lowered meanwhile: tried again by that cap
            return
        if total > cap:
            seen, limit = -1 if self.fault == "sum-first" else process.seen, max(cap, process.limit)
            yield READ, 0, _set(state, number, Process("over", limit=limit, seen=seen))
            return
        if process.limit >= 0:  # it may go on, for a batch that the next ones need
            yield READ, 0, _set(state, number, process._replace(at="over"))
        at = {"policy": "done", "attach": "get"}.get(self.programs[number].kind, "room")
        at = "written" if at == "room" and self.fault == "rename-first" else at
        yield READ, 0, _set(state, number, Process(at, limit=state.cap if at in ("room", "written") else -1))

    def _over(self, state: State, number: int, process: Process) -> Steps:
        """Evict, count again, give the room back, or see that others have made room."""
        yield from self._sum(state, number, process)
        for shard in range(len(state.page)):
            yield from self._lock(state, number, shard, "evicting")
        if state.staged[number]:
            yield from self._lock(state, number, self.shard(number), "giving")
        elif not any(state.entries) and not self._waits(state, number):
            yield LEAVE, 0, _set(state, number, Process("get" if self.programs[number].kind == "attach" else "done"))

    def _waits(self, state: State, number: int) -> bool:
        """Returns whether a program that lowered the cap waits: for the living that have room, who find it lowered."""
        has_reserved = any(size and not its.is_dead for size, its in zip(state.staged, state.processes, strict=True))
        return self.programs[number].kind == "policy" and has_reserved

    def _evict(self, state: State, number: int, process: Process) -> Steps:
        for key, entry in enumerate(state.entries):
            if entry and self.shards[key] == process.shard:
                after = state._replace(entries=_with(state.entries, key, 0))
                fewer = process._replace(blocks=process.blocks - 1, entries=process.entries - 1)
                yield UNLINK, key, _set(after, number, fewer)
        if process.entries:
            yield from self._account(state, number, process._replace(then="sum"))
        else:
            yield from self._count(state, number, process)

    def _write(self, state: State, number: int, process: Process) -> Steps:
        after = _set(state, number, Process("written", limit=process.limit))
        yield WRITE, number, after._replace(staged=_with(state.staged, number, 2))

    def _rename(self, state: State, number: int, process: Process) -> Steps:
        key, size = self.programs[number].key, state.staged[number]
        if not size:  # a reaper took it for a dead owner's
            yield LOST, 0, _set(state, number, process._replace(at="unlock", then="lost"))
            return
        replaced = bool(state.entries[key])
        blocks = -2 * replaced if self.fault == "credited-twice" else -int(replaced)
        after = state._replace(
            entries=_with(state.entries, key, 1 if size == 2 else -1), staged=_with(state.staged, number, 0)
        )
        then = "give back" if self.programs[number].kind == "lease" else "done"
        change = process._replace(at="account", then=then, blocks=blocks, entries=int(not replaced))
        yield RENAME, key, _set(after, number, change)

    def _give(self, state: State, number: int, process: Process) -> Steps:
        after = state._replace(staged=_with(state.staged, number, 0))
        yield DROP, number, _set(after, number, process._replace(at="account", then="put", blocks=-1))

    # Removals, counts and openings.

    def _remove(self, state: State, number: int, process: Process) -> Steps:
        key = self.programs[number].key
        if state.entries[key]:
            after = state._replace(entries=_with(state.entries, key, 0))
            yield UNLINK, key, _set(after, number, process._replace(at="account", then="done", blocks=-1, entries=-1))
        else:
            yield from self._unlock(state, number, process._replace(then="done"))

    def _hold(self, state: State, number: int, process: Process) -> Steps:
        yield from self._unlock(state, number, process._replace(then="done"))

    def _count(self, state: State, number: int, process: Process) -> Steps:
        """Remove what the dead have staged, and set the slot right, all under the lock."""
        then = {"recount": "done", "reap": "reap"}.get(self.programs[number].kind, "over")
        for its, size in enumerate(state.staged):
            is_left = state.processes[its].is_dead or self.fault == "no-owner-check"
            if size and is_left and self.shard(its) == process.shard:
                after = state._replace(staged=_with(state.staged, its, 0))
                yield DROP, its, _set(after, number, process._replace(at="counting"))
        counted = self._counted(state, process.shard)
        if self.fault == "count-without-lock":
            counted = counted._replace(blocks=process.seen)
        if counted == process.read:
            yield from self._unlock(state, number, process._replace(then=then))
        else:
            yield from self._account(state, number, process._replace(then=then, read=counted))

    def _counted(self, state: State, shard: int) -> Slot:
        entries = sum(bool(each) for key, each in enumerate(state.entries) if self.shards[key] == shard)
        staged = sum(bool(each) for its, each in enumerate(state.staged) if self.shard(its) == shard)
        return Slot(entries + staged, entries)

    def _reap(self, state: State, number: int, process: Process) -> Steps:
        for shard in range(len(state.page)):
            yield from self._lock(state, number, shard, "counting")
        yield LEAVE, 0, _set(state, number, Process("done"))

    def _lower(self, state: State, number: int, process: Process) -> Steps:
        yield CAP, 0, _set(state, number, Process("sum"))._replace(cap=self.cap - 1)
        if state.cap < self.cap:  # another one has lowered it
            yield LEAVE, 0, _set(state, number, Process("sum"))

    def _get(self, state: State, number: int, process: Process) -> Steps:
        yield LEAVE, 0, _set(state, number, Process("done"))

    # The lease of a key.

    def _ask(self, state: State, number: int, process: Process) -> Steps:
        key = self.programs[number].key
        if state.entries[key]:
            yield OPEN, key, _set(state, number, Process("done"))
        if state.lease == FREE:
            yield LEASE, 0, _set(state, number, Process("look"))._replace(lease=number)
        if state.has_failed:  # nobody waits for those who compute what failed a moment ago
            yield from self._compute(state, number, process)

    def _look(self, state: State, number: int, process: Process) -> Steps:
        key = self.programs[number].key
        yield LOOK, key, _set(state, number, Process("found" if state.entries[key] else "missing"))

    def _open(self, state: State, number: int, process: Process) -> Steps:
        key = self.programs[number].key
        yield OPEN, key, _set(state, number, Process("give back" if state.entries[key] else "missing"))

    def _miss(self, state: State, number: int, process: Process) -> Steps:
        yield from self._compute(state, number, process)
        if state.has_failed:
            yield NOTE, 0, _set(state, number, Process("let go"))

    def _compute(self, state: State, number: int, process: Process) -> Steps:
        if self.programs[number].kind == "give-up":
            is_kept = self.fault == "lease-kept" or state.lease != number
            yield COMPUTE, 0, _set(state, number, Process("done" if is_kept else "give back"))
            return
        lease = FREE if self.fault == "lease-back-first" and state.lease == number else state.lease
        yield COMPUTE, 0, _set(state, number, Process("put"))._replace(computed=state.computed + 1, lease=lease)

    def _give_back(self, state: State, number: int, process: Process) -> Steps:
        if state.lease != number:
            yield LEAVE, 0, _set(state, number, Process("done"))
            return
        if self.programs[number].kind == "give-up":
            yield NOTE, 0, _set(state, number, Process("let go"))._replace(has_failed=True)
        yield GIVE_BACK, 0, _set(state, number, Process("done"))._replace(lease=FREE)

    def _let_go(self, state: State, number: int, process: Process) -> Steps:
        """Close the lease file, and leave the note in it."""
        after = state._replace(lease=FREE, has_failed=True)
        if self.programs[number].kind == "give-up":
            yield LET_GO, 0, _set(after, number, Process("done"))
        else:
            yield LET_GO, 0, _set(after, number, Process("missed"))


# The programs that look too early, by the fault.
_PEEKS: Final = (("put", "sum-first"), ("put", "policy-once"), ("recount", "count-without-lock"))
# Where each kind begins, if not at its own name.
_BEGIN: Final = {"lease": "ask", "give-up": "ask", "policy": "lower", "attach": "sum"}
# Where a process waits for the lock of its own shard, and what it does under it.
_LOCKED: Final = {
    "put": "staging",
    "written": "publishing",
    "lowered": "giving",
    "remove": "removing",
    "recount": "counting",
    "hold": "holding",
}
_METHODS: Final = {
    **dict.fromkeys(_LOCKED, "_begin"),
    "unread": "_read",
    "again": "_again",
    "account": "_account",
    "unlock": "_unlock",
    "peek": "_peek",
    "staging": "_stage",
    "sum": "_sum",
    "over": "_over",
    "evicting": "_evict",
    "room": "_write",
    "publishing": "_rename",
    "giving": "_give",
    "removing": "_remove",
    "holding": "_hold",
    "counting": "_count",
    "reap": "_reap",
    "lower": "_lower",
    "get": "_get",
    "ask": "_ask",
    "look": "_look",
    "give back": "_give_back",
    "let go": "_let_go",
    "found": "_open",
    "missing": "_miss",
    "missed": "_compute",
}


_T = TypeVar("_T")


def _gone_on(process: Process) -> Process:
    """Returns where a process goes behind the lock. What it saw it keeps while it makes room."""
    if process.then in ("sum", "over"):
        return Process(process.then, limit=process.limit, seen=process.seen)
    return Process(process.then)


def _with(found: tuple[_T, ...], at: int, value: _T) -> tuple[_T, ...]:
    return (*found[:at], value, *found[at + 1 :])


def _set(state: State, number: int, process: Process) -> State:
    return state._replace(processes=(*state.processes[:number], process, *state.processes[number + 1 :]))
