# SPDX-License-Identifier: Apache-2.0
"""Whatever is planted in a cache directory, wherever: no use of the cache reads it, follows it or hangs on it.

A matrix of what is planted, where, and what is done; next to the cache stands a directory that would pass for a part of
it, and of which nothing may be made, changed, removed or read.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, LockcacheError
from lockcache.cli.program import run as run_command
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.staging import StagedEntry
from lockcache_daemon.command import run as run_daemon
from tests.access.planted_files import FORGED, KEY, OBJECTS, PLACES, READABLE, Outside, plant
from tests.matrix_sampling import diagonals

OURS = b"ours" * 100


class HungError(BaseException):
    """An operation did not end. No Exception, which something on its way might take for an answer."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """A guard, never a measurement: what is done here takes milliseconds, or a lock timeout of 50 ms."""

    def raise_hung(number: int, frame: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, raise_hung)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def open_cache(root: Path, **arguments: object) -> FileStreamProgramCache:
    return FileStreamProgramCache(root, lock_timeout_seconds=0.05, lease_timeout_seconds=0.05, **arguments)


def get(cache: FileStreamProgramCache) -> None:
    for _ in range(2):
        assert cache.get(KEY) in (None, OURS)
        assert cache.get_entry(KEY) in (None, Entry(OURS))


def put(cache: FileStreamProgramCache) -> None:
    cache[KEY] = b"newer"
    assert cache.get(KEY) in (None, b"newer")


def put_metadata(cache: FileStreamProgramCache) -> None:
    cache.put_entry(KEY, Entry(b"newer", {"long": "x" * 5000}))
    assert cache.get(KEY) in (None, b"newer")


def delete(cache: FileStreamProgramCache) -> None:
    with contextlib.suppress(KeyError):
        del cache[KEY]
    assert cache.get(KEY) is None


def clear(cache: FileStreamProgramCache) -> None:
    cache.clear()
    assert cache.get(KEY) is None


def compute(cache: FileStreamProgramCache) -> None:
    assert cache.get_or_compute(KEY, lambda: b"computed") in (OURS, b"newer", b"computed")
    assert cache.get_or_compute(b"other", lambda: b"computed") == b"computed"


def fill(cache: FileStreamProgramCache) -> None:
    for number in range(30):
        cache[b"%d" % number] = OURS
        assert cache.get(b"%d" % number) in (None, OURS)


def view(cache: FileStreamProgramCache) -> None:
    cache.put_files(KEY, {"kernel": b"newer"})
    assert cache.get_files(KEY) in (None, {"kernel": b"newer"})
    path = cache.view_files(KEY)
    assert path is None or Path(path, "kernel").read_bytes() == b"newer"


def queue(cache: FileStreamProgramCache) -> None:
    """A put that finds no room: another write in progress, in the same shard, has reserved nearly all of the cap."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            other = StagedEntry(cache._directory, entry_name(KEY), 3998)
            stack.callback(other.abandon)
            other.reserve()
        put(cache)


def recount(cache: FileStreamProgramCache) -> None:
    # A repair may report that it cannot be made.
    with contextlib.suppress(OSError):
        cache.recount()


LIVE: dict[str, Callable[[FileStreamProgramCache], object]] = {
    "get": get,
    "put": put,
    "put metadata": put_metadata,
    "delete": delete,
    "clear": clear,
    "compute": compute,
    "evict": fill,
    "view": view,
    "queue": queue,
    "recount": recount,
    "len": len,
    "stats": lambda cache: cache.stats(),
}


def reopen(root: Path) -> None:
    with open_cache(root, max_size_bytes=4000) as cache:
        get(cache)
        put(cache)
        compute(cache)
        fill(cache)
        recount(cache)


def by_command(*arguments: str) -> Callable[[Path], None]:
    def command(root: Path) -> None:
        assert run_command([*arguments, str(root)]) in (0, 1, 2)

    return command


def by_daemon(*arguments: str) -> Callable[[Path], None]:
    def once(root: Path) -> None:
        assert run_daemon(["--max-size", "5K", *arguments, str(root)]) in (0, 1, 2)

    return once


#: With a process of its own each, as it were: they open the directory after something was planted.
FRESH: dict[str, Callable[[Path], None]] = {
    "open": reopen,
    "lockcache stats": by_command("stats", "--json"),
    "lockcache ls": by_command("ls", "--json"),
    "lockcache verify": by_command("verify", "--repair"),
    "lockcache recount": by_command("recount", "--json"),
    "lockcache clear": by_command("clear", "--yes"),
    "lockcache policy set": by_command("policy", "set", "--max-size", "5K"),
    "daemon --once": by_daemon("--once"),
    "daemon --dry-run": by_daemon("--dry-run"),
}

needs_root = pytest.mark.root  # making device files

KINDS = [pytest.param(kind, marks=needs_root if kind == "device" else ()) for kind in OBJECTS]


def used_directory(tmp_path: Path, name: str, **arguments: object) -> tuple[Path, FileStreamProgramCache]:
    root = tmp_path / name / "cache"
    cache = open_cache(root, max_size_bytes=4000, **arguments)
    cache[KEY] = OURS
    cache.get_or_compute(b"computed before", lambda: b"1")
    cache.get(KEY)
    return root, cache


# Where records are in files, these are other ways through the code.
RECORD_PLACES = ("entry", "own", "records", "record shard", "record")
ROWS = [pytest.param(place, False, id=place) for place in PLACES]
ROWS += [pytest.param(place, True, id=f"{place} with record files") for place in RECORD_PLACES]


@pytest.mark.parametrize("place, record_files, kind", diagonals(ROWS, KINDS, 10))
def test_no_use_reads_follows_or_hangs_on_what_another_member_plants_under_it(tmp_path, kind, place, record_files):
    """In a directory of a group: in a private one only its owner could plant, and only once does a process look."""
    wrong = []
    for name, use in LIVE.items():
        root, cache = used_directory(tmp_path, name, record_files=record_files, group=True)
        outside = Outside(tmp_path / name / "outside")
        plant(kind, root / PLACES[place], outside)
        try:
            with no_hang():
                use(cache)
            outside.assert_untouched(may_be_read=kind == "hard link" and place in READABLE)
        except (AssertionError, Exception, HungError) as error:  # noqa: BLE001 - all of a row's faults at once
            wrong.append(f"{name}: {(str(error).splitlines() or [repr(error)])[0][:60]}")
        cache.close()
    assert not wrong, wrong


@pytest.mark.parametrize("place, kind", diagonals(PLACES, KINDS, 10))
def test_nobody_who_opens_it_later_reads_follows_or_hangs_on_it(tmp_path, kind, place, capfd):
    wrong = []
    for name, use in FRESH.items():
        root, cache = used_directory(tmp_path, name)
        cache.close()
        outside = Outside(tmp_path / name / "outside")
        plant(kind, root / PLACES[place], outside)
        try:
            with no_hang(), contextlib.suppress(OSError, LockcacheError):
                use(root)
            outside.assert_untouched(may_be_read=kind == "hard link" and place in READABLE)
            said = "".join(capfd.readouterr())
            assert "Traceback" not in said
            assert FORGED.decode() not in said
        except (AssertionError, Exception, HungError) as error:  # noqa: BLE001 - all of a row's faults at once
            wrong.append(f"{name}: {(str(error).splitlines() or [repr(error)])[0][:60]}")
    assert not wrong, wrong


def test_the_matrix_would_notice_a_read(tmp_path):
    outside = Outside(tmp_path / "outside")
    outside.assert_untouched()
    outside.file.read_bytes()
    if os.statvfs(tmp_path).f_flag & os.ST_NOATIME:
        pytest.skip("no access times here")
    with pytest.raises(AssertionError):
        outside.assert_untouched()
