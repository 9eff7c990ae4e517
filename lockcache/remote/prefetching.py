# SPDX-License-Identifier: Apache-2.0
"""Prefetching: what a manifest lists and a directory lacks is fetched from the server behind it, at once.

Decides when: the first process of a node that opens the directory fetches, in a thread for which no one waits; no other
process does so at the same time, or for a minute afterwards. A key that is looked up meanwhile is asked for as without
a manifest. The lock is the kernel's: after a process that died while fetching, the next one fetches the rest.

Keeps invariant 3 (hard cap): copies are stored as all that is read from a server, and take half of the cap at most, so
that a manifest that is too long evicts nothing of itself. Keeps invariant 2 (last write wins): a copy replaces nothing.
Keeps invariant 7 (never take the job down): whatever the server or the disk does here is the end of it, and at most a
line in the log; a process that ends waits for the one entry that is just being stored.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from lockcache.errors import in_words
from lockcache.filestream import CacheDirectory, Outcome, Writer, Written
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.bundle import SeedFile
from lockcache.filestream.disk import UPDATE, Layout, ProcessLock, is_alone, read_small
from lockcache.filestream.entry import KeyRing
from lockcache.filestream.eviction import Evicted
from lockcache.fork import after_fork_in_child
from lockcache.remote.bulk import read_bulk
from lockcache.remote.manifest import read_manifest
from lockcache.remote.servers import RemoteError
from lockcache.remote.store import RemoteStore
from lockcache.serving import watch

_log = logging.getLogger("lockcache")

# Between two prefetches of one manifest on a node: as between two looks at a seed's file.
_PAUSE_SECONDS: Final = 60.0
# The time in all. An entry that has not arrived by then is asked for when it is needed.
_LONGEST_SECONDS: Final = 60.0
_MARK_BYTES: Final = 64
# The wait for an entry that is just being stored, at the end of a process.
_END_SECONDS: Final = 1.0
_ENDED: Final = "it was ended"


class Fetched(NamedTuple):
    """The outcome of fetching a list of keys."""

    keys: int
    #: That the directory, or its seed, had.
    present: int
    #: Entries that were fetched and stored, and their bytes.
    fetched: int
    bytes: int
    #: Keys for which the server has no entry, or none that is believed.
    missing: int
    #: Why it ended before all keys were asked for, or empty.
    failure: str


def fetch_missing(
    directory: CacheDirectory,
    store: RemoteStore,
    keys: Collection[str],
    signing: KeyRing | None,
    keep: Callable[[str, tuple[bytes, bytes]], Written],
    *,
    seconds: float = _LONGEST_SECONDS,
    is_ended: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Fetched:
    """Fetch the entries of ``keys`` that the directory lacks, and have ``keep`` store each.

    ``progress`` is given how many keys are dealt with, and of how many. Raises nothing for what the server or the disk
    does.
    """
    layout, limit_bytes = directory.layout, directory.limit_bytes()
    wanted = _lacking(layout, keys, signing)
    fetched = size_bytes = asked = missing = 0
    failure = ""
    try:
        for part, found in read_bulk(store, wanted, seconds, is_ended):
            asked += len(part)
            missing += len(part) - len(found)
            for name, loaded in found.items():
                if limit_bytes is not None and 2 * (size_bytes + len(loaded[0])) > limit_bytes:
                    failure = "half of the directory's cap is fetched"
                    break
                written = keep(name, loaded)
                if written.outcome is Outcome.STORED:
                    fetched += 1
                    size_bytes += len(loaded[0])
                elif written.is_dropped and not has_entry(layout, name):
                    failure = written.why
                    break
            progress(asked, len(wanted))
            if failure:
                break
    except RemoteError as error:
        failure = f"{store.url.shown}: {error}"
    if not failure and asked < len(wanted):
        failure = _ENDED
    return Fetched(len(keys), len(keys) - len(wanted), fetched, size_bytes, missing, failure)


def _lacking(layout: Layout, keys: Collection[str], signing: KeyRing | None) -> list[str]:
    seeded: set[bytes] = set()
    try:
        seed = SeedFile(layout, signing)
        seeded = set(seed.served())
        seed.close()
    except OSError as error:  # mostly there is none
        _log.debug("%s: no seed is read: %s", layout.root, error)
    return sorted(name for name in keys if bytes.fromhex(name) not in seeded and not has_entry(layout, name))


class Prefetch:
    """The prefetch of one manifest by this process, if it is the one to do it."""

    def __init__(
        self,
        writer: Writer,
        store: RemoteStore,
        signing: KeyRing | None,
        folder: str,
        path: str,
        counts: dict[str, int],
    ) -> None:
        """``folder``: what the directory keeps of the server. ``counts["evictions"]`` grows by what copies evict."""
        self._writer = writer
        self._store = store
        self._signing = signing
        self._layout = writer.directory.layout
        self._mark = f"{folder}/prefetched"
        # The lock is the mark's file, and who has it writes there when it is done.
        self._lock = ProcessLock(self._mark, 0.0, layout=self._layout)
        self._path = path
        self._identity = hashlib.sha256(path.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()[:16]
        self._counts = counts
        self._is_ended = False
        self._storing = threading.Lock()
        #: The thread that fetches, once :meth:`begin` has found that there is something to do.
        self.thread: threading.Thread | None = None
        after_fork_in_child(self)

    def begin(self) -> None:
        """Fetch in the background, unless another process of the node does, or did so a minute ago."""
        watch.await_prefetch(self.is_over)
        if self._was_done():
            return
        try:
            self.thread = threading.Thread(target=self.run, name="lockcache prefetch", daemon=True)
            self.thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return
        # A thread that is stopped in the midst of a store leaves what a killed writer leaves.
        atexit.register(self.end)

    def run(self) -> None:
        """Fetch, unless another process does or did. Raises nothing."""
        hold = None
        try:
            hold = self._lock.try_hold()
            if hold is None or self._was_done():
                return
            self._fetch()
            if self._is_ended:
                return  # what is left is for the next process, and at once
            with self._layout.reach.open(self._mark, UPDATE) as fd:
                if is_alone(fd):  # else the file has another name, which somebody planted
                    os.pwrite(fd, b"%d %s" % (time.time(), self._identity.encode()), 0)
        except FileNotFoundError as error:
            _log.debug("%s: there is no manifest yet: %s", self._path, in_words(error))
        except (OSError, ValueError) as error:
            _log.warning("LOCKCACHE_MANIFEST: nothing is fetched: %s", in_words(error))
        finally:
            if hold is not None:
                hold.release()
            self._lock.close()

    def is_over(self) -> bool:
        """Returns whether no process of this node fetches what the manifest lists, whatever came of it."""
        if self.thread is not None and self.thread.is_alive():
            return False
        try:
            hold = self._lock.try_hold()
        except OSError:
            return True  # nobody can have it
        if hold is None:
            return False
        hold.release()
        self._lock.close()
        return True

    def end(self) -> None:
        """Store nothing from now on. Waits for the entry that is just being stored."""
        self._is_ended = True
        if self._storing.acquire(timeout=_END_SECONDS):
            self._storing.release()

    def _fetch(self) -> None:
        keys = read_manifest(self._path)
        fetched = fetch_missing(
            self._writer.directory,
            self._store,
            keys,
            self._signing,
            self._keep,
            is_ended=lambda: self._is_ended or self._store.link.breaker.is_open(),
        )
        _log.debug("%s: %s", self._path, fetched)

    def _keep(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        with self._storing:
            if self._is_ended:
                return Written(Outcome.DROPPED, Evicted(), _ENDED)
            written = self._writer.store_copy(name, loaded)
        self._counts["evictions"] += written.evicted.entries
        return written

    def _was_done(self) -> bool:
        try:
            when, _, identity = read_small(self._layout, self._mark, _MARK_BYTES).decode().partition(" ")
            return identity == self._identity and 0 <= time.time() - int(when) < _PAUSE_SECONDS
        except (OSError, ValueError):
            return False

    def _after_fork_in_child(self) -> None:
        # The thread is its parent's.
        self._is_ended = True
        self._storing = threading.Lock()
