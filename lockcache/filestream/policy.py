# SPDX-License-Identifier: Apache-2.0
"""The policy of a directory: the cap, the bytes that it leaves for entries, and what goes first.

Decides how much of a cap entries may take (:meth:`Policy.entries_limit_bytes`). Where the policy stands, and whose cap
counts: :mod:`.accounting.state`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from lockcache.arguments import coerce_choice
from lockcache.filestream.disk import SHARDS, Space

#: The order of eviction: the less recently used entry goes first, or the one that is worth less.
Priority = Literal["lru", "value"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
#: The words for it that users may give; ``cost`` is what the order by value was called.
PRIORITY_WORDS: Final[dict[str, Priority]] = {"value": "value", "lru": "lru", "cost": "value"}

# What the directory holds in addition to entries, in blocks: tag, state (72 KiB with its tables), pins (32 KiB),
# daemon.json, what the daemon remembers and one of these being replaced, the ring of misses (32 KiB); a dozen folders;
# and some leases.
# Charged against caps of which it is a small part, so that du and statvfs agree that the directory is under its cap;
# against a cap of a few kilobytes it would be all of it.
_OWN_BLOCKS: Final = 60
# Where inodes count (xfs), those that no entry counts for: a lock file and two folders for each shard, or one folder
# and a staged file just before its reservation. The folders of records are mostly missing; xfs makes inodes by 64 in
# each allocation group, and these make up for the unused ones.
_OWN_INODES: Final = 3 * SHARDS
_SMALLEST_CHARGED_CAP: Final = 4 << 20
_SMALLEST_CHARGED_BLOCKS: Final = 1024


@dataclass(frozen=True)
class Seed:
    """The bundle that stands below a directory (:mod:`.seeding`)."""

    #: Of the bundle that was copied; an absolute path.
    path: str
    #: The bytes that the directory's copy takes of the cap.
    bytes: int
    #: Tells one file under that path from the next: its size and its time.
    version: str
    #: Whether an operator chose it; if so no program's argument replaces it.
    by_operator: bool = False
    #: Whether ``clear`` took it away, so that the same file is not copied again.
    is_detached: bool = False


def most_seed_bytes(cap: int) -> int:
    """Returns what the copy of a bundle may take of a cap: half, so that as much is left for compiled programs."""
    return cap // 2


@dataclass(frozen=True)
class Policy:
    """The rules of one directory."""

    max_size_bytes: int | None = None
    #: Whether an operator set the cap; if so no program's argument replaces it.
    by_operator: bool = False
    #: Which entries go first when room is needed.
    priority: Priority = "value"
    #: Whether somebody chose it: an operator may well have said value.
    states_priority: bool = field(default=False, compare=False, kw_only=True)
    #: Whether nobody stated the cap: the default directory got it when it was made.
    is_default: bool = False
    #: Not a rule: :meth:`.StatedPolicy.replace` leaves it unchanged.
    seed: Seed | None = field(default=None, compare=False, kw_only=True)
    #: Not a rule, and not published: the bytes of what other programs have in ``tmp/``, as this process last saw them.
    others_bytes: int = field(default=0, compare=False, kw_only=True)

    def over(self, stated: Policy) -> Policy:
        """Returns the policy of a directory that states another one, once a program adds this one to it.

        Where nothing is stated, it is this one. Else its cap replaces the other, and its priority the default one: so
        programs that differ in their priority do not alternate. An operator's policy stays.
        """
        is_default = stated.priority == Policy.priority and not stated.states_priority
        if is_default and stated == Policy():
            return replace(self, seed=stated.seed)
        if stated.by_operator:
            return stated
        if self.max_size_bytes is not None:
            stated = replace(stated, max_size_bytes=self.max_size_bytes, is_default=False)
        return replace(stated, priority=self.priority) if is_default else stated

    def entries_limit_bytes(self, space: Space) -> int | None:
        """Returns what entries and reservations may add up to, or ``None`` for no limit.

        ``space`` is that of the directory, and has no default: a daemon that sweeps by another limit than the one that
        writers keep to never sweeps a directory with a small cap on xfs.
        """
        cap, block = self.max_size_bytes, space.block_bytes
        if cap is None:
            return None
        if cap >= max(_SMALLEST_CHARGED_CAP, _SMALLEST_CHARGED_BLOCKS * block):
            cap -= _OWN_BLOCKS * (block + space.inode_bytes) + _OWN_INODES * space.inode_bytes
        if self.seed is not None:
            cap = max(0, cap - self.seed.bytes)
        # A user who may put files there takes at most three quarters of the rest, so that something is stored besides.
        return cap - min(self.others_bytes, cap // 4 * 3)


def configured_priority() -> Priority | None:
    """Returns the priority in ``$LOCKCACHE_POLICY``, or ``None``. Raises :class:`ValueError` naming the variable."""
    word = coerce_choice("LOCKCACHE_POLICY", tuple(PRIORITY_WORDS))
    return None if word is None else PRIORITY_WORDS[word]
