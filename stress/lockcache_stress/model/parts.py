# SPDX-License-Identifier: Apache-2.0
"""Parts of the model: names of steps, programs and processes, and the states of a directory."""

from __future__ import annotations

from typing import Final, NamedTuple

LOCK, UNLOCK = "lock_descriptor(locks/SHARD)", "unlock_descriptor(locks/SHARD)"
READ, PAGE, CAP = "pread(state)", "pwrite(state, SHARD)", "pwrite(state, cap)"
STAGE, WRITE, DROP = "open(tmp/STAGED)", "write(tmp/STAGED)", "unlink(tmp/STAGED)"
RENAME, UNLINK = "rename(tmp/STAGED, entries/SHARD/NAME)", "unlink(entries/SHARD/NAME)"
LEASE, GIVE_BACK, LET_GO = "lock_descriptor(leases/NAME)", "unlink(leases/NAME)", "close(leases/NAME)"
LIST: Final = "scandir(entries/SHARD)"
NOTE: Final = "pwrite(leases/NAME, failed)"
OPEN: Final = "open(entries/SHARD/NAME)"
LOOK: Final = "access(entries/SHARD/NAME)"
DEATH: Final = "SIGKILL"
COMPUTE, LEAVE, LOST = "compute", "leave", "rename fails"
#: Steps without a call of their own: what a process concludes from its last look.
SILENT: Final = frozenset([COMPUTE, LEAVE, LOST])

#: A lock that nobody has.
FREE: Final = -1


class Program(NamedTuple):
    """What a process does: one of :data:`KINDS`, with the key that it is about."""

    kind: str
    key: int = 0

    def __str__(self) -> str:
        return self.kind + (f" of key {self.key}" if self.key else "")


#: A put; compile-once; compile-once that fails, and leaves a note for those who wait; a removal; a recount; a reap;
#: an opening with a smaller cap; an opening; a hold of the lock that changes nothing; reads; and a writer that was
#: dead before.
KINDS: Final = ("put", "lease", "give-up", "remove", "recount", "reap", "policy", "attach", "hold", "get", "dead")


class Slot(NamedTuple):
    """What the page states of a shard."""

    #: Of entries and staged files.
    blocks: int = 0
    entries: int = 0

    def plus(self, blocks: int, entries: int) -> Slot:
        """Returns the sum, which is nowhere negative."""
        return Slot(max(0, self.blocks + blocks), max(0, self.entries + entries))


class Process(NamedTuple):
    """One process: where it stands, and what it has in mind."""

    at: str
    #: Where it goes once it has read the slot, or has given the lock back.
    then: str = ""
    #: The shard whose lock it took, the slot as it read it, and what it adds to that.
    shard: int = -1
    read: Slot = Slot()
    blocks: int = 0
    entries: int = 0
    #: The cap by which it began to make room, or had it.
    limit: int = -1
    #: What it saw first, for faults: the cap, the sum, or the blocks of a shard.
    seen: int = -1
    is_dead: bool = False


class State(NamedTuple):
    """A state of the directory, and of all processes."""

    processes: tuple[Process, ...]
    #: By shard: who holds the lock, and what the page states.
    locks: tuple[int, ...]
    page: tuple[Slot, ...]
    cap: int
    #: By key: 0 for none, 1 for a whole entry, -1 for one without its bytes.
    entries: tuple[int, ...]
    #: By process: 0 for no staged file, 1 for an empty one, 2 for one with its bytes.
    staged: tuple[int, ...]
    #: The holder of the lease of the first key, whether one left a note that it failed, and how many computed.
    lease: int
    has_failed: bool
    computed: int
    deaths_left: int

    @property
    def accounted(self) -> int:
        """The blocks that the page states."""
        return sum(slot.blocks for slot in self.page)

    @property
    def disk(self) -> int:
        """The blocks that entries and staged files take."""
        return sum(map(bool, self.entries)) + sum(size == 2 for size in self.staged)
