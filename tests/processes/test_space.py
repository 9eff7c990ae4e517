# SPDX-License-Identifier: Apache-2.0
"""The cap counts what files take on disk: statvfs and du stay under it for values of any size, at any moment."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.accounting import space_of
from lockcache.filestream.disk.space import Space
from lockcache.filestream.entry import StagedEntry
from lockcache.lowlevel import CacheDirectory, Layout, Policy, entry_name, find_drift
from lockcache_stress.run.sampler import used_bytes
from tests.daemon.daemon_process import until
from tests.matrix_sampling import EXHAUSTIVE, all_but
from tests.processes.crowd import run_all
from tests.processes.sampler import watch_bytes_in_use
from tests.state_pages import space_stated

MIB = 1 << 20
PROCESSES = 4
# Of writers that begin again: a loaded machine takes a minute for all of it.
ROUNDS = 4
SIZES = (500, 3300, 5100, 20_000)
# The case that is tried each time: entries of less than a block, with a record in an attribute.
USUAL = (500, "with metadata")
METADATA = {"bare": {}, "with metadata": {"log": "l" * 300}}

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("real_blocks")]


def _fill(path: str, writer: int, numbers: range, size: int, metadata: dict[str, Any], start: Any) -> int:
    cache = FileStreamProgramCache(path, lock_timeout_seconds=60)
    start.wait()
    entry = Entry(os.urandom(size), metadata)
    for number in numbers:
        cache.put_entry(b"%d %d" % (writer, number), entry)
    return cache.stats().dropped_writes


def _fill_to_the_brim(cache: FileStreamProgramCache, cap: int, entry: Entry) -> None:
    """Put until the next put would have to evict."""
    limit = Policy(cap).entries_limit_bytes(space_of(Layout(cache.path)))
    assert limit is not None
    most = 2 * len(entry.code) + 16 * 4096
    for number in itertools.count():
        if cache.stats().bytes > limit - most:
            return
        cache.put_entry(b"brim %d" % number, entry)


def _du(path: Path) -> int:
    return int(subprocess.run(["du", "-s", "-B1", str(path)], check=True, capture_output=True).stdout.split()[0])


@pytest.fixture(
    params=["tmpfs", pytest.param("ext4", marks=pytest.mark.long), pytest.param("xfs", marks=pytest.mark.long)]
)
def place(
    request: pytest.FixtureRequest, mount_tmpfs: Callable[..., Path], mount_image: Callable[..., Path]
) -> tuple[Path, int]:
    """A file system of its own, and a cap for a cache on it."""
    if request.param == "tmpfs":
        return mount_tmpfs("size=512m"), 8 * MIB
    return mount_image(request.param, 512), 64 * MIB


def _cases() -> list[Any]:
    return [
        pytest.param(size, name, marks=() if (size, name) == USUAL else EXHAUSTIVE, id=f"{size} B, {name}")
        for size in SIZES
        for name in METADATA
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size, metadata", _cases())
def test_statvfs_and_du_never_exceed_the_cap(
    request: pytest.FixtureRequest, place: tuple[Path, int], size: int, metadata: str
) -> None:
    root, cap = place
    before = used_bytes(str(root))
    cache = FileStreamProgramCache(root / "cache", max_size_bytes=cap)
    values = int(1.2 * cap) // max(4096, size) // PROCESSES // ROUNDS
    start = multiprocessing.get_context("fork").Barrier(PROCESSES)
    dropped = 0
    with watch_bytes_in_use(root) as finish:
        for serial in range(ROUNDS):
            numbers = range(serial * values, (serial + 1) * values)
            arguments = [(cache.path, n, numbers, size, METADATA[metadata], start) for n in range(PROCESSES)]
            dropped += sum(run_all("fork", _fill, arguments))
        # How far below its limit the last batch of evictions left it is chance.
        _fill_to_the_brim(cache, cap, Entry(os.urandom(size), METADATA[metadata]))
        peak, samples = finish()
    os.sync()
    assert samples > 100
    if request.node.callspec.params["place"] == "xfs":
        # It takes back the blocks and inodes of what was removed a while later, whatever we counted.
        until(lambda: used_bytes(str(root)) - before <= cap)
    else:
        assert peak - before <= cap
    assert _du(root / "cache") <= cap
    assert dropped == 0
    assert used_bytes(str(root)) - before > 0.8 * cap, "it is full, but for a batch"
    assert find_drift(Layout(cache.path)) == (0, 0, 0, 0)


def test_what_is_counted_is_what_du_says(place: tuple[Path, int]) -> None:
    root, _ = place
    cache = FileStreamProgramCache(root / "cache")
    own = _du(root / "cache") - cache.stats().bytes
    for number in range(400):
        cache.put_entry(b"%d" % number, Entry(os.urandom(number * 37), {"log": "l" * number}))
    for number in range(0, 400, 2):
        cache[b"%d" % number] = b"less"
    for number in range(0, 400, 5):
        del cache[b"%d" % number]
    for number in range(0, 300, 3):  # with notes from none to a kilobyte
        state(b"%d" % number, {f"define M{n}": number for n in range(number // 10)}, "saxpy")
        cache[b"%d" % number] = b"noted" * number
    counted = cache.stats().bytes
    assert cache.recount() == []
    if space_stated(cache.path).inode_bytes:
        counted -= len(cache) * 512  # which statvfs shows, and du does not
    os.sync()
    # Folders of its own, made since: locks, and the ring of misses.
    assert 0 <= _du(root / "cache") - counted - own <= (4 + 8) * 4096


def test_all_processes_count_as_the_directory_states(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileStreamProgramCache(cache_path).close()
    stated = space_stated(cache_path)
    monkeypatch.setattr("lockcache.filestream.disk.space._space_on", lambda mount, fragment_bytes: Space(1 << 20))
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"k"] = b"v"
        assert cache.stats().bytes < 1 << 20
        assert cache.recount() == []
    assert space_stated(cache_path) == stated


@pytest.mark.slow
@pytest.mark.parametrize("record_files", all_but([True], [False, True]))
def test_a_small_cap_is_not_filled_by_the_folders_of_entries_that_went(
    mount_image: Callable[..., Path], record_files: bool
) -> None:
    root = mount_image("ext4", 64)
    cache = FileStreamProgramCache(root / "cache", max_size_bytes=512 * 1024, record_files=record_files)
    for number in range(300):
        cache.put_entry(b"%d" % number, Entry(b"x" * 500))
    assert cache.stats().dropped_writes == 0
    assert len(cache) >= 1
    assert cache.recount() == []


def test_names_that_others_chose_cannot_stop_the_page_from_being_made_anew(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"v"
        layout = Layout(cache.path)
        for serial in range(2):
            Path(layout.tmp, f"00.{2**63 - 1}.{'0' * 16}.1.1.{serial}").touch()
        os.unlink(layout.state)
        cache["l"] = b"v"
        assert cache.stats().entries == 2


def test_who_abandons_a_write_gives_back_on_the_page_that_was_made_meanwhile(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    directory = CacheDirectory(str(cache_path), 5.0)
    staged = StagedEntry(directory, entry_name(b"k"), 1 << 20)
    staged.reserve()
    os.unlink(directory.layout.state)
    FileStreamProgramCache(cache_path).close()
    staged.abandon()
    assert directory.usage().total() == (0, 0)
