# SPDX-License-Identifier: Apache-2.0
"""Traces: whether what real processes did, call by call, is a run of the model.

Each call is a step of the model, or one of those that it does not have (:data:`NO_STEPS`, with the reason). All runs of
the model are followed at once that make the same steps in the same order, and after which the model's page, cap,
entries and staged files are what the disk has. A trace after which none is left is not a run of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lockcache_stress.model import parts
from lockcache_stress.model.parts import DEATH, SILENT, Slot, State
from lockcache_stress.model.protocol import Model

END: Final = "end"
#: By name and file, the calls that are steps: the step's name, and whether the call may also be none, as there are more
#: such calls than the protocol has.
STEPS: Final = {
    ("lock_descriptor", "locks/SHARD"): (parts.LOCK, False),
    ("unlock_descriptor", "locks/SHARD"): (parts.UNLOCK, False),
    ("pread", "state"): (parts.READ, True),  # more looks than these change nothing
    ("pwrite", "state, SHARD"): (parts.PAGE, False),
    ("pwrite", "state, head"): (parts.CAP, True),  # also ages; the cap is compared
    ("open", "tmp/STAGED, new"): (parts.STAGE, False),
    ("write", "tmp/STAGED"): (parts.WRITE, False),
    ("unlink", "tmp/STAGED"): (parts.DROP, False),
    ("rename", "tmp/STAGED"): (parts.RENAME, False),
    ("unlink", "entries/SHARD/NAME"): (parts.UNLINK, False),
    ("open", "entries/SHARD/NAME"): (parts.OPEN, True),  # also where there is no entry
    ("access", "entries/SHARD/NAME"): (parts.LOOK, True),
    ("lock_descriptor", "leases/NAME"): (parts.LEASE, True),  # of a file that has lost its name, it is none
    ("unlink", "leases/NAME"): (parts.GIVE_BACK, True),  # a reaper removes those of the dead
    ("pwrite", "leases/NAME"): (parts.NOTE, True),  # the holder writes who it is before
    ("close", "leases/NAME"): (parts.LET_GO, True),  # behind an unlink, it frees nothing
}
_LOOK: Final = "it changes nothing; what follows from it is the next step"
_LOCK_FILE: Final = "who holds a lock counts, not whether it has a file"
_FOLDER: Final = "folders are made where they are missing, and take no room in these directories"
_RECORD: Final = "an entry's bytes are one with its record and times"
_USES: Final = "which entry goes first is open in the model, so that uses do not count"
_QUEUE: Final = "the queue orders those who want room; in the model all evict at once"
_HEAD: Final = "the cap is one write of the page's head: see STEPS"
_OWNER: Final = "in the model everybody knows who lives; here a pid says so, and this lock to other hosts"
_BELL: Final = "a bell wakes those who sleep; in the model they may go on at any time"
_BELLS: Final = ("locks/room.queue", "locks/room.bell", "leases/NAME.bell")
_HOLDER: Final = "who holds a lease is known by its lock"
#: The calls that are not a step, with the reason: those of any file, and those of one kind of file.
NO_STEPS: Final = {
    **dict.fromkeys(
        [(name, "") for name in ("access", "close", "fstat", "fsync", "getxattr", "listdir", "lstat", "open", "pread",
                                 "read", "scandir", "stat")], _LOOK),
    **dict.fromkeys(
        [("open", f"{file}, new") for file in ("locks/SHARD", "locks/room", "locks/directory", "leases/NAME")],
        _LOCK_FILE),
    **dict.fromkeys([("mkdir", "leases"), ("mkdir", "entries/SHARD"), ("rmdir", "entries/SHARD")], _FOLDER),
    **dict.fromkeys([("setxattr", "tmp/STAGED"), ("utime", "tmp/STAGED")], _RECORD),
    **dict.fromkeys([("utime", "entries/SHARD/NAME"), ("pwrite", "state, tables")], _USES),
    **dict.fromkeys([(name, "locks/room") for name in ("lock_descriptor", "unlock_descriptor")], _QUEUE),
    **dict.fromkeys([(name, "locks/directory") for name in ("lock_descriptor", "unlock_descriptor")], _HEAD),
    ("lock_descriptor", "tmp/STAGED"): _OWNER,
    ("ftruncate", "leases/NAME"): _HOLDER,
    ("ftruncate", "locks/SHARD"): "says that the file is the lock's first one",
    **dict.fromkeys([(name, bell) for name in ("write", "unlink") for bell in _BELLS], _BELL),
    ("unlock_descriptor", ""): "its descriptor is closed",
}  # fmt: skip


class Disk(NamedTuple):
    """The directory, as far as the model has it: see :class:`.State`."""

    page: tuple[Slot, ...]
    cap: int
    entries: tuple[int, ...]
    staged: tuple[int, ...]


class Step(NamedTuple):
    """One thing that a process did."""

    process: int
    #: The step of the model; empty for none. :data:`END`: the process has done all.
    name: str
    #: The shard, key or process that it is on.
    on: int = 0
    may_be_none: bool = False
    #: The directory behind it, if that was looked at.
    disk: Disk | None = None


class Broken(NamedTuple):
    """A trace that is not a run."""

    at: int
    why: str


class Follower:
    """Follows traces of one model, and keeps what the model can do: many traces come to the same states."""

    def __init__(self, model: Model) -> None:
        self._model = model
        # States by number, since a trace is followed through the same ones again and again.
        self._numbers: dict[State, int] = {}
        self._states: list[State] = []
        self._disks: list[Disk] = []
        self._known: dict[tuple[int, int], list[tuple[str, int, int]]] = {}

    @property
    def states(self) -> int:
        """How many states of a process all traces came to."""
        return len(self._known)

    def follow(self, trace: Sequence[Step]) -> tuple[Broken | None, list[int]]:
        """Returns where a trace leaves all runs of the model, and a sum of the model's states behind each step.

        The first is ``None`` if it is a run.
        """
        states, sums = frozenset([self._number(self._model.first())]), list[int]()
        for at, step in enumerate(trace):
            after = frozenset(self._after(states, step)) if step.name else states
            if not after:
                where = sorted({self._states[state].processes[step.process].at for state in states})
                return Broken(at, f"the model has no step {step.name} of process {step.process} at {where}"), sums
            disk = step.disk
            states = after if disk is None else frozenset(state for state in after if self._disks[state] == disk)
            if not states:
                said = " or ".join(sorted({str(self._disks[state]) for state in after}))
                behind = step.name or "a call"
                return Broken(at, f"behind {behind}, the disk is {disk}, and the model has {said}"), sums
            sums.append(hash(states))
        return None, sums

    def _number(self, state: State) -> int:
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._disks.append(disk_of_state(state))
        return found

    def _after(self, states: frozenset[int], step: Step) -> Iterator[int]:
        """Yields the states behind a step from any of these."""
        number = step.process
        if step.name == DEATH:
            yield from (self._number(self._model.die(self._states[state], number)) for state in states)
            return
        if step.may_be_none:
            yield from states
        elif step.name == parts.UNLOCK:  # who was refused a lock gives it back all the same
            yield from (state for state in states if self._states[state].locks[step.on] != number)
        for state in states:
            for name, on, after in self._steps(state, number):
                if name == step.name and on == step.on:
                    yield after

    def _steps(self, state: int, number: int) -> list[tuple[str, int, int]]:
        """Returns the calls that a process may make next, or :data:`END`, also behind silent steps."""
        found = self._known.get((state, number))
        if found is None:
            found = self._known[state, number] = []
            left, seen = [self._states[state]], {self._states[state]}
            for at in left:
                if at.processes[number].at == "done":
                    found.append((END, 0, self._number(at)))
                for name, on, after in self._model.steps_of(at, number):
                    if name not in SILENT:
                        found.append((name, on, self._number(after)))
                    elif after not in seen:
                        seen.add(after)
                        left.append(after)
        return found


def disk_of_state(state: State) -> Disk:
    """Returns the model's directory."""
    return Disk(state.page, state.cap, state.entries, state.staged)
