# SPDX-License-Identifier: Apache-2.0
"""The back ends under test. A new back end is a new line in ``BACK_ENDS``; the whole suite then runs over it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from lockcache import (
    FileStreamProgramCache,
    InMemoryProgramCache,
    RemoteProgramCache,
    SQLiteProgramCache,
    TieredProgramCache,
)
from lockcache.arguments import PROGRAM_VARIABLES, is_disabled, variables_left_alone
from lockcache.filestream.entry.codec import HEAD_BYTES
from lockcache.remote import wait_limits
from lockcache.remote.wait_limits import _patience
from tests.unit.bundle.bundles import bundle_of, write


@dataclass(frozen=True)
class BackEnd:
    """One kind of cache: how to make it, and how it differs from others."""

    name: str
    #: ``make(path, **arguments)``: two calls with one path make two caches over one store, if caches of this kind can
    #: share one. ``kind=`` makes a cache of a subclass.
    make: Callable[..., Any]
    #: The bytes that an entry without metadata counts for in addition to its payload.
    overhead_bytes: int = 0
    #: Whether other objects and other processes see the entries that a cache stores.
    is_shared: bool = False
    #: Whether a copy in front of the store may answer a read, so that the store's order of use and accounting differ.
    has_copies: bool = False
    #: Whether each read counts as a use at once, which it does not if a copy answers, nor on a network file system.
    counts_each_use: bool = True
    #: Whether it can be pickled if it is shared, which a memory tier cannot.
    is_picklable: bool = True
    #: Whether it is on the server that :data:`SERVER` names, where a cap does not decide what can be read.
    has_server: bool = False
    #: Whether it accounts for its entries and bytes and removes them, which no object does for a server that it shares.
    has_accounts: bool = True
    #: Arguments with which no write is dropped after a long wait, however busy the machine is.
    patience: Mapping[str, Any] = field(default_factory=dict)

    def cap_for(self, entries: int, payload_bytes: int) -> int:
        """Returns a cap that holds exactly so many entries of that size."""
        return entries * (payload_bytes + self.overhead_bytes)

    def __str__(self) -> str:
        return self.name


def _memory(path: Path, kind: type = InMemoryProgramCache, **arguments: Any) -> Any:
    return kind(**arguments)


def _filestream(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    return kind(path, **arguments)


def _record_files(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    return kind(path, record_files=True, **arguments)


def _signed(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    # The file is next to the cache, and the first process makes it.
    keys = path.with_name(f"{path.name}.keys")
    with (
        contextlib.suppress(FileExistsError),
        open(os.open(keys, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f,
    ):
        f.write("5a" * 32)
    return kind(path, signing_key_file=keys, **arguments)


def _network(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
        return kind(path, **arguments)


#: The keys of this suite's tests of which the seed has older values.
_KEYS = ["k", "a", "b", "c", "d", "other", "key", "big", "new", "no", "absent", "plain", "twin", *map(str, range(40))]


def _seeded(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    """Open over a seed with an older value of each key. All are removed, and none may ever be read again."""
    seed = path.with_name(f"{path.name}.lcb")
    if not seed.exists() and not is_disabled():
        write(seed, bundle_of({key.encode(): b"from the seed, and removed" for key in _KEYS}))
        with variables_left_alone(PROGRAM_VARIABLES), FileStreamProgramCache(path, seed=seed) as cache:
            assert len(cache) == len(_KEYS)
            for key in _KEYS:
                del cache[key]
            assert len(cache) == 0
            assert cache.stats().entries == 0
    return kind(path, **arguments)


def _sqlite(path: Path, kind: type = SQLiteProgramCache, **arguments: Any) -> Any:
    return kind(path / "programs.sqlite3", **arguments)


def _tiered(path: Path, kind: type = TieredProgramCache, recheck: float = 60.0, *more: Any, **arguments: Any) -> Any:
    only_shared = {name: arguments.pop(name) for name in _PATIENT if name in arguments}
    tiers = InMemoryProgramCache(**arguments), FileStreamProgramCache(path, **arguments, **only_shared), *more
    return kind(*tiers, recheck_seconds=recheck)


def _tiered_rechecking(path: Path, kind: type = TieredProgramCache, **arguments: Any) -> Any:
    return _tiered(path, kind, 0, **arguments)


def _tiered_golden(path: Path, kind: type = TieredProgramCache, **arguments: Any) -> Any:
    """Open in front of an empty directory that is only read."""
    golden = path.with_name(f"{path.name}.golden")
    if not is_disabled():
        FileStreamProgramCache(golden, read_only=False).close()
    return _tiered(path, kind, 0, FileStreamProgramCache(golden, read_only=True), **arguments)


#: The variable with the URL of the server for all tests of this process and its children.
SERVER = "CONTRACT_SUITE_VALKEY"


def _place_on_server(path: Path) -> str:
    """Returns a URL for this path, with a prefix of its own on the server of this session."""
    return f"{os.environ[SERVER]}?prefix={hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}:"


@contextlib.contextmanager
def endless_patience() -> Iterator[None]:
    """Wait longer, in the block, for a server that answers late on a busy machine."""
    _patience.clear()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LIFE_SECONDS", "_LONGEST_CALL_SECONDS", "_PROMPT_SECONDS"):
            patch.setattr(wait_limits, name, 60.0)
        yield
    _patience.clear()


class AwaitedRemoteCache(RemoteProgramCache):
    """Waits for each write, which is sent in the background, because other objects of the suite read it at once.

    Its length is the number of entries under its prefix on the server, so that no others may be there.
    """

    def _send(self, *given: Any) -> None:
        super()._send(*given)
        self.flush()

    def __delitem__(self, key: bytes | str) -> None:
        try:
            super().__delitem__(key)
        finally:
            self.flush()

    def __len__(self) -> int:
        with Redis.from_url(os.environ[SERVER]) as client:
            return sum(1 for key in client.scan_iter(f"{self._url.prefix}*") if b":lease:" not in key)


def _remote(path: Path, kind: type = AwaitedRemoteCache, **arguments: Any) -> Any:
    return kind(_place_on_server(path), **arguments)


def _tiered_remote(path: Path, kind: type = TieredProgramCache, **arguments: Any) -> Any:
    return kind(FileStreamProgramCache(path, **arguments), RemoteProgramCache(_place_on_server(path)))


def _filestream_remote(path: Path, kind: type = FileStreamProgramCache, **arguments: Any) -> Any:
    """Open with ``$LOCKCACHE_REMOTE`` set during the opening."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKCACHE_REMOTE", _place_on_server(path))
        return kind(path, **arguments)


def _upstream_memory(path: Path, **arguments: Any) -> Any:
    from cuda.core.utils import InMemoryProgramCache as Upstream

    return Upstream(**arguments)


def _upstream_filestream(path: Path, **arguments: Any) -> Any:
    from cuda.core.utils import FileStreamProgramCache as Upstream

    return Upstream(path, **arguments)


_PATIENT = {"lock_timeout_seconds": 60.0}

BACK_ENDS = [
    BackEnd("memory", _memory),
    BackEnd("filestream", _filestream, is_shared=True, patience=_PATIENT),
    BackEnd("filestream-record-files", _record_files, overhead_bytes=HEAD_BYTES, is_shared=True, patience=_PATIENT),
    BackEnd("filestream-signed", _signed, is_shared=True, patience=_PATIENT),
    BackEnd("filestream-network", _network, is_shared=True, counts_each_use=False, patience=_PATIENT),
    BackEnd("filestream-seeded", _seeded, is_shared=True, patience=_PATIENT),
    BackEnd("sqlite", _sqlite, is_shared=True, patience=_PATIENT),
    BackEnd("tiered", _tiered, has_copies=True, counts_each_use=False, patience=_PATIENT),
    BackEnd("tiered-rechecking", _tiered_rechecking, is_shared=True, is_picklable=False, patience=_PATIENT),
    BackEnd("tiered-golden", _tiered_golden, is_shared=True, is_picklable=False, patience=_PATIENT),
    BackEnd("tiered-remote", _tiered_remote, is_shared=True, has_server=True, patience=_PATIENT),
    BackEnd("filestream-remote", _filestream_remote, is_shared=True, has_server=True, patience=_PATIENT),
    BackEnd("remote", _remote, is_shared=True, has_server=True, has_accounts=False),
]

#: cuda.core's own caches, which pass the tests of what a caller of cuda.core can observe today.
UPSTREAM = [BackEnd("upstream-memory", _upstream_memory), BackEnd("upstream-filestream", _upstream_filestream)]


def each_with_all_ways(ways: Sequence[Callable[..., Any]]) -> Any:
    """Parametrize a test by ``way`` and ``back_end``: each back end with one of the ways, the file back end with all.

    The ways come to one call of the store, so that a back end which fails with another way fails with its own.
    """
    pairs = [(ways[number % len(ways)], back_end) for number, back_end in enumerate(BACK_ENDS)]
    pairs += [(way, BACK_ENDS[1]) for way in ways if (way, BACK_ENDS[1]) not in pairs]
    cells = [pytest.param(*pair, id=f"{pair[1]}-{pair[0].__name__}") for pair in pairs]
    return pytest.mark.parametrize("way, back_end", cells, indirect=["back_end"])
