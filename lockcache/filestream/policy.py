"""The policy of a directory, ``policy.json``: the cap, the bytes that it leaves for entries, and what goes first.

Decides which cap counts, and how much of it entries may take (:meth:`Policy.entries_limit_bytes`). The file's cap
counts for every process; it is read again at every write (2 us), so a change reaches running processes at their next
write. The operator (the daemon, ``lockcache policy set``) may always change it; a program that opens the cache with
``max_size_bytes`` only if no operator has set a cap.

Keeps invariant 3 (hard cap) across changes, and invariant 7 (never take the job down): a policy file that is damaged or
deleted while the cache is open leaves the last good one in force.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

from lockcache.arguments import coerce_choice, configured_cap
from lockcache.errors import PolicyError
from lockcache.filestream.disk import (
    SHARDS,
    Layout,
    ProcessLock,
    Space,
    parse_json,
    read_small,
    refuse_symlink,
    replace_file,
)

_log = logging.getLogger("lockcache")

#: The order of eviction: the less recently used entry goes first, or the one that is worth less.
Priority = Literal["lru", "cost"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)

# What the directory holds in addition to entries, in blocks: tag, format, policy, usage, counters, daemon.json, what
# the daemon remembers and one of these being replaced, the table of costs (16 KiB), the ring of misses (32 KiB); a
# dozen folders; and some leases.
# Charged against caps of which it is a small part, so that du and statvfs agree that the directory is under its cap;
# against a cap of a few kilobytes it would be all of it.
_OWN_BLOCKS: Final = 40
# Where inodes count (xfs), those that no entry counts for: a lock file and two folders for each shard, or one folder
# and a staged file just before its reservation. The folders of records are mostly missing; xfs makes inodes by 64 in
# each allocation group, and these make up for the unused ones.
_OWN_INODES: Final = 3 * SHARDS
# A policy is some 60 bytes, and the path of a seed.
_LARGEST_BYTES: Final = 4096
# For how long another process may be about to publish one.
_LOCK_SECONDS: Final = 1.0

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
    priority: Priority = "lru"
    #: Whether the file names it: an operator may well have said lru.
    states_priority: bool = field(default=False, compare=False, kw_only=True)
    #: Whether nobody stated the cap: the default directory got it when it was made.
    is_default: bool = False
    #: Not a rule: :meth:`PolicyFile.replace` leaves it unchanged.
    seed: Seed | None = field(default=None, compare=False, kw_only=True)

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
        return cap if self.seed is None else max(0, cap - self.seed.bytes)


def stated_policy(cap: int | None) -> tuple[int | None, Priority | None]:
    """Returns the cap and the priority that a program states: ``cap`` or else by variables.

    Raises :class:`ValueError` naming the variable.
    """
    return cap or configured_cap(), coerce_choice("LOCKCACHE_POLICY", PRIORITIES)


class PolicyFile:
    """The policy of one directory, as it stands on disk."""

    __slots__ = ("_is_shared", "_layout", "_path", "_policy", "_raw", "_reported")

    def __init__(self, layout: Layout, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._path = layout.policy
        self._layout = layout
        self._raw = b""
        self._reported = ""
        self._policy = Policy()

    @property
    def latest(self) -> Policy:
        """The policy as it was last read."""
        return self._policy

    def current(self) -> Policy:
        """Returns the policy in force, read each time: an equal mtime proves nothing where clocks tick in seconds."""
        try:
            raw = self._read()
            # No file does not mean a new policy: a directory deleted underneath keeps its cap, see :meth:`restore`.
            if raw and raw != self._raw:
                self._raw = raw
                self._policy = self._parse(raw)
            self._reported = ""
        except (OSError, PolicyError) as error:
            if str(error) != self._reported:
                self._reported = str(error)
                # The error's text only: a handler that keeps the record would keep the error's frames, and what is open
                # in them.
                _log.warning("%s; the policy read before stays in force", self._reported)
        return self._policy

    def load(self) -> Policy:
        """Returns :meth:`current`, for opening. Raises :class:`PolicyError` for a policy that cannot be understood."""
        self._raw = self._read()
        self._policy = self._parse(self._raw)
        return self._policy

    def replace(self, policy: Policy) -> None:
        """Publish a policy for every process, but for its seed, which stays what it is on disk.

        Raises :class:`OSError` where the directory cannot be written.
        """
        with self._locked():
            seed = None
            with contextlib.suppress(OSError, PolicyError):  # one that is damaged has none
                seed = self._parse(self._read()).seed
            self._publish(policy, seed)

    def replace_seed(self, seed: Seed | None) -> None:
        """Publish which bundle stands below the directory. Raises :class:`OSError`."""
        with self._locked():
            self._publish(self.current(), seed)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock: rules and seed are written by different processes, each of which keeps the other's line.

        Where locks do not work, a policy is set without one.
        """
        lock, hold = ProcessLock(self._layout.policy_lock, _LOCK_SECONDS, layout=self._layout), None
        if not self._layout.is_guest:
            with contextlib.suppress(OSError):
                hold = lock.hold(_LOCK_SECONDS)
        try:
            yield
        finally:
            if hold is not None:
                hold.release()
            lock.close()

    def _publish(self, policy: Policy, seed: Seed | None) -> None:
        body: dict[str, object] = {"max_size_bytes": policy.max_size_bytes, "by_operator": policy.by_operator}
        if policy.priority != Policy.priority or policy.states_priority:
            body["priority"] = policy.priority
        if policy.is_default:
            body["is_default"] = True
        if seed is not None:
            body["seed"] = {name: value for name, value in asdict(seed).items() if value is not False}
        text = json.dumps(body).encode() + b"\n"
        if seed is not None and len(text) > _LARGEST_BYTES:
            raise OSError(errno.ENAMETOOLONG, "the policy has no room for the path of this seed", seed.path)
        replace_file(self._layout, self._path, text)

    def begin_with(self, cap_bytes: int) -> None:
        """Publish a cap that nobody stated, unless there is a policy, or was one when the directory was deleted."""
        if self._policy == Policy() and not os.path.lexists(self._path):
            self.replace(Policy(cap_bytes, is_default=True))

    def restore(self) -> None:
        """Publish the policy read last, if the directory has none any more: it was deleted and made again."""
        if self._policy != Policy() and not os.path.lexists(self._path):
            self.replace(self._policy)

    def _read(self) -> bytes:
        if self._is_shared:
            refuse_symlink(self._layout.own)
        # Where there was none, asking first is the cheaper answer: a failed open builds an exception, 1.2 us. For the
        # effective user, as open does: where another is the real one (setuid, seteuid) there is no policy, and no cap.
        if not self._raw and not os.access(self._path, os.F_OK, effective_ids=True):
            return b""
        try:
            return read_small(self._layout, self._path, _LARGEST_BYTES)
        except FileNotFoundError:
            return b""

    def _parse(self, raw: bytes) -> Policy:
        if not raw:
            return Policy()
        try:
            body = parse_json(raw)
            cap, by_operator = body["max_size_bytes"], body.get("by_operator", False)
            priority = body.get("priority", Policy.priority)
        except (ValueError, KeyError) as error:
            raise PolicyError(
                f"{self._path} is not a policy ({_why(error)}); remove it or set it again", self._path
            ) from None
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or not 0 < cap < 2**63):
            where = f"{self._path}, {_place_of(raw, 'max_size_bytes')}"
            raise PolicyError(f"{where}: max_size_bytes must be a positive int or null, got {cap!r}", self._path)
        if priority not in PRIORITIES:
            accepted = " or ".join(PRIORITIES)
            where = f"{self._path}, {_place_of(raw, 'priority')}"
            raise PolicyError(f"{where}: priority must be {accepted}, got {priority!r}", self._path)
        is_default = bool(body.get("is_default", False))
        seed = self._parse_seed(body.get("seed"))
        return Policy(cap, bool(by_operator), priority, is_default, states_priority="priority" in body, seed=seed)

    def _parse_seed(self, found: Any) -> Seed | None:
        if found is None:
            return None
        with contextlib.suppress(TypeError, ValueError):
            seed = Seed(**found)
            if [type(value) for value in vars(seed).values()] == [str, int, str, bool, bool]:
                os.fsencode(seed.path)  # half of a character pair, which no path has
                if seed.path.startswith("/") and "\0" not in seed.path and 0 <= seed.bytes < 2**63:
                    return seed
        raise PolicyError(f"{self._path}: its seed is not what lockcache writes; remove the file", self._path)


def _place_of(text: bytes, key: str) -> str:
    """Returns where the value of ``key`` stands, ``line 2, column 21``; of several the last, like the parser."""
    found = list(re.finditer(rb'"%s"\s*:\s*' % re.escape(key).encode(), text))
    if not found:
        return "line 1, column 1"
    before = text[: found[-1].end()].decode("utf-8", "replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _why(error: Exception) -> str:
    """Returns the message of a parser's error, or of a missing key."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return str(error)
