# SPDX-License-Identifier: Apache-2.0
"""Ranks: processes on one of the clients, which do the calls of a trial one after another.

They are forked from the trial's process, which has never opened a cache, and enter their client's namespaces first.
They are not spawned, because an emulated interpreter takes seconds to import the modules that a fork has already.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import random
import time
import traceback
from collections import Counter
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event
from typing import Any, Final
from unittest import mock

from lockcache import FileStreamProgramCache, TieredProgramCache
from lockcache.bundle import promote
from lockcache.lowlevel import CacheDirectory, Layout, reap
from lockcache_stress.hosts.guest.site import Client
from lockcache_stress.judge import Stamp, make_value, parse_value
from lockcache_stress.processes import die_with_parent

_FORK: Final = multiprocessing.get_context("fork")
_CALL_SECONDS: Final = 450.0
_LOCK_SECONDS: Final = 5.0
#: The time after which a process on any host may remove the staged files of a dead one.
REAPED_AFTER_SECONDS: Final = 70.0
# The token in values that both caches write, by which a reader verifies that a value is whole and belongs to its key.
_TOKEN: Final = b"neighbor"
_TRADED_KEYS: Final = 64


class RankFailedError(Exception):
    """Raised for a call that raised in the rank, or of which the rank died. The message is the traceback."""


class Rank:
    """A process on a client; ends with its ``with`` block."""

    def __init__(self, client: Client) -> None:
        self.client = client
        #: The event for which its computations wait, if a trial wants them to.
        self.gate: Event = _FORK.Event()
        self._connection, other_end = _FORK.Pipe()
        self._process = _FORK.Process(target=_serve, args=(client, other_end, self.gate), daemon=True)
        self._process.start()
        other_end.close()

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Returns the number of its process."""
        return self._process.pid or 0

    def kill(self) -> None:
        """SIGKILL the process, and wait for its end."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Have the rank do a call. Returns the result."""
        self.begin(name, *arguments, **options)
        return self.result()

    def begin(self, name: str, *arguments: Any, **options: Any) -> None:
        """Have the rank begin a call, without waiting for the result."""
        self._connection.send((name, arguments, options))

    def result(self, seconds: float = _CALL_SECONDS) -> Any:
        """Wait for the call that was begun. Raises :class:`RankFailedError` if it raised, or takes too long."""
        if not wait([self._connection, self._process.sentinel], timeout=seconds):
            raise RankFailedError(f"a rank on {self.client.name} did not answer in {seconds:.0f} s")
        try:
            is_well, result = self._connection.recv()
        except EOFError:
            raise RankFailedError(f"a rank on {self.client.name} died") from None
        if not is_well:
            raise RankFailedError(result)
        return result

    def has_answered(self) -> bool:
        """Returns whether the last call has ended."""
        return self._connection.poll()


class _Served:
    """The calls of a rank, on one cache object, as a program has it."""

    def __init__(self, gate: Event) -> None:
        self._gate = gate
        self._held: list[int] = []
        self._cache: FileStreamProgramCache | None = None
        self._tiers: tuple[FileStreamProgramCache, ...] = ()

    @property
    def cache(self) -> FileStreamProgramCache:
        if self._cache is None:
            raise RuntimeError("nothing was opened")
        return self._cache

    def open(self, directory: str, **options: Any) -> None:
        self._cache = FileStreamProgramCache(directory, **options)

    def open_both(self, local: str, directory: str) -> None:
        """Open a directory of this host, in front of the shared one."""
        tiers: Any = TieredProgramCache(FileStreamProgramCache(local), FileStreamProgramCache(directory))
        self._cache = tiers  # only methods that every back end has are called after this

    def close(self) -> None:
        self.cache.close()

    def promote(self, directory: str, path: str) -> int:
        """Returns the number of entries that were new to the bundle."""
        return promote(Layout(directory), path).promoted

    def put(self, key: str, value: bytes) -> float:
        """Put a value. Returns when the put had returned, on the clock that both hosts share."""
        self.cache[key] = value
        return time.monotonic()

    def remove(self, key: str) -> float:
        """Remove an entry. Returns as :meth:`put` does."""
        del self.cache[key]
        return time.monotonic()

    def put_each(self, keys: list[str], value: bytes) -> None:
        for key in keys:
            self.cache[key] = value

    def put_until_gate(self, prefix: str, value: bytes) -> int:
        """Write keys without a pause. Returns their number."""
        count = 0
        while not self._gate.is_set():
            self.cache[f"{prefix}/{count}"] = value
            count += 1
        return count

    def get(self, key: str) -> bytes | None:
        return self.cache.get(key)

    def get_each(self, keys: list[str]) -> int:
        """Returns the number of hits."""
        return sum(self.cache.get(key) is not None for key in keys)

    def poll(self, key: str, wanted: bytes, seconds: float, pause: float) -> list[tuple[float, str]]:
        """Read a key until it has this value. Returns the begin and the result of each read."""
        seen: list[tuple[float, str]] = []
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            found = self.cache.get(key)
            seen.append((began, "miss" if found is None else "wanted" if found == wanted else "other"))
            if found == wanted or began > deadline:
                return seen
            time.sleep(pause)

    def compute(self, key: str, value: bytes, *, at_gate: bool = False, seconds: float = 0.0) -> tuple[bytes, bool]:
        """Ask compile-once for a key. Returns the code, and whether this rank computed it."""
        computed = False

        def work() -> bytes:
            nonlocal computed
            computed = True
            if at_gate:
                self._gate.wait()
            time.sleep(seconds)  # a compiler's work
            return value

        return self.cache.get_or_compute(key, work), computed

    def compute_each(self, keys: list[str], value: bytes, seconds: float = 0.0) -> tuple[int, int]:
        """Returns how many of the keys this rank computed, and how many codes were wrong."""
        results = [self.compute(key, value + key.encode(), seconds=seconds) for key in keys]
        wrong = sum(code != value + key.encode() for key, (code, _) in zip(keys, results, strict=True))
        return sum(computed for _, computed in results), wrong

    def has_cuda_core(self) -> bool:
        return _cuda_core_cache() is not None

    def open_cuda_core(self, directory: str) -> None:
        """Open cuda.core's own cache instead of lockcache's."""
        kind = _cuda_core_cache()
        if kind is None:
            raise RuntimeError("cuda.core cannot be imported")
        self._cache = kind(directory)

    def trade(self, writer: int, seconds: float) -> dict[str, int]:
        """Write and read keys that others write too. Returns the counts of both, and of reads that were not whole."""
        rng, counted = random.Random(writer), Counter[str]()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            key = rng.randrange(_TRADED_KEYS)
            if rng.random() < 0.5:
                stamp = Stamp(writer, 0, counted["puts"] + 1, 0)
                value = make_value(_TOKEN, key, stamp, rng.randrange(1000, 200_000))
                self.cache[b"traded/%d" % key] = value
                counted += Counter(puts=1, put_bytes=len(value))
            elif (found := self.cache.get(b"traded/%d" % key)) is not None:
                proof = parse_value(found)
                counted += Counter(hits=1, wrong=int(proof is None or (proof.token, proof.key) != (_TOKEN, key)))
        return dict(counted)

    def trust_names(self) -> None:
        """Have this rank look only once whether its page and its open locks still have their names.

        Without emulation that is once a second too, in which a process does a thousand puts, and here two.
        """
        for room in ("disk.locks", "accounting.network_pages"):
            mock.patch(f"lockcache.filestream.{room}.is_fresh", lambda asked_at: asked_at > -math.inf).start()

    def hold(self, path: str) -> None:
        """Open a file and keep it open."""
        self._held.append(os.open(path, os.O_RDONLY))

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def open_locks(self) -> int:
        """Returns the number of lock files that this rank has open."""
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()]
        return sum("/locks/" in name for name in names)

    def dropped_writes(self) -> int:
        """Returns the writes that were dropped, in every tier."""
        return sum(each.stats().dropped_writes for each in self._tiers or (self.cache,))

    def unverified_hits(self) -> int:
        return self.cache.stats().unverified_hits

    def entries(self) -> int:
        return self.cache.stats().entries

    def accounted_bytes(self) -> int:
        return self.cache.stats().bytes

    def reap(self, seconds_later: float) -> int:
        """Reap like a process will after so many seconds. Returns the number of shards that had to be corrected."""
        directory = CacheDirectory(str(self.cache.path), _LOCK_SECONDS)
        with mock.patch("time.time", return_value=time.time() + seconds_later):
            return reap(directory)

    def recount(self) -> list[str]:
        """Returns the shards that had to be corrected, each with the accounting before and the content of the disk."""
        return [
            f"shard {each.shard:02x}: {each.before.bytes:,} bytes in {each.before.entries} accounted for, "
            f"{each.after.bytes:,} in {each.after.entries} there"
            for each in self.cache.recount()
        ]


def _cuda_core_cache() -> Any:
    try:
        from cuda.core.utils import FileStreamProgramCache as CudaCoreCache
    except (ImportError, OSError, RuntimeError):
        return None
    return CudaCoreCache


def _descriptors() -> list[int]:
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(fd)
        except OSError:  # the descriptor of the listing itself
            continue
        found.append(fd)
    return found


def _serve(client: Client, asked: Connection, gate: Event) -> None:
    die_with_parent()
    enter(client)
    served = _Served(gate)
    while True:
        name, arguments, options = asked.recv()
        try:
            answer = True, getattr(served, name)(*arguments, **options)
        except Exception:  # noqa: BLE001 - whatever it is, the trial has to hear of it
            answer = False, traceback.format_exc(limit=-6)
        asked.send(answer)


def enter(client: Client) -> None:
    """Move this process to the client: its network, and its host name."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("netns", "uts"):
        fd = os.open(f"/run/{kind}/{client.name}", os.O_RDONLY)
        try:
            if libc.setns(fd, 0):
                raise OSError(ctypes.get_errno(), f"setns {kind}", client.name)
        finally:
            os.close(fd)
