# SPDX-License-Identifier: Apache-2.0
"""A member who swaps folders for symlinks while another one works: nothing outside of the directory changes.

Each round is a fresh process of the victim's, which opens, stores, hits, replaces, evicts, recounts, quarantines and
removes. What the swaps make of its own work is a miss, a dropped write or an error; nobody judges that here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.errors import LockcacheError
from lockcache.filestream.disk.folders import open_folder
from lockcache.filestream.disk.layout import Layout, StagedName, entry_name
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.policy import Policy
from lockcache.filestream.repair.quarantine import empty_quarantine, measure_quarantine
from lockcache.filestream.repair.recount import reap, recount_shard
from lockcache.filestream.repair.verify import OwnEntries, verify_entry
from lockcache_daemon.keeper.single_instance import Instance
from lockcache_daemon.scrub.scrub import Scrub
from lockcache_daemon.settings.rules import Rules
from tests.access.group_members import ALICE, GROUP, as_member, run_as
from tests.access.symlink_racer import exchanging, leading_out, picture, untouched

pytestmark = [pytest.mark.root, pytest.mark.long]

KEYS = [b"%d" % number for number in range(24)]
ROUNDS = 4
#: In one shard, that of the first of KEYS, which is swapped.
NEIGHBOURS = [b"26", b"369", b"435", b"557", b"653", b"1092"]
REMOVALS = 150


@pytest.fixture
def outside(home: Path, shared: Path) -> Path:
    """A private directory of Alice's, in which everything stands that a cache of the same entries has, and more.

    So that whatever is done there by a name finds something under it: dead writers' staged files, records without
    entries, a state with a second name, a full quarantine, leases of the dead, a scrub's
    position.
    """
    run_as(ALICE, as_member(shared, _fill, record_files=True))
    outside = home / "outside"
    shutil.copytree(shared, outside)
    layout = Layout(str(outside))
    os.unlink(layout.entry(entry_name(KEYS[0])))
    os.link(layout.state, f"{outside}/state")
    Path(layout.scrub).write_bytes(b"{}")
    for key in KEYS:
        name = entry_name(key)
        Path(layout.tmp, str(StagedName(int(name[:2], 16), 9, myself().host, 2**22 + 1, 1, 0))).write_bytes(b"dead")
        Path(layout.lease(name, 0)).write_bytes(b"{}")
    for number in range(70):
        Path(f"{layout.quarantine}/20261121T170102.{number:09d}Z-{entry_name(b'q')}-digest").write_bytes(b"kept")
    for path in [outside, *outside.rglob("*")]:
        os.chown(path, ALICE, ALICE)
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (10**9, 10**9))
    return outside


def _fill(cache: FileStreamProgramCache) -> None:
    for key in KEYS + NEIGHBOURS:
        cache.put_entry(key, Entry(b"x" * 300, {"label": "x" * 50}))
    cache.get_or_compute(b"computed", lambda: b"1")
    cache._parts.once.costs.remember(entry_name(b"computed"), 2 * 10**9)
    cache.stats()
    for path in (cache._directory.layout.quarantine, cache._directory.layout.leases):
        os.makedirs(path, 0o2770, exist_ok=True)
        os.chmod(path, 0o2770)


def _damage(cache: FileStreamProgramCache, name: str) -> None:
    with open_folder(cache.path, "entries", name[:2]) as folder:
        fd = os.open(name[2:], os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        os.pwrite(fd, b"?", 0)
        os.close(fd)


OPERATIONS = (
    lambda cache, key: cache.put_entry(key, Entry(b"y" * 300, {"label": "y" * (key[-1] % 10)})),
    lambda cache, key: cache.get_entry(key),
    lambda cache, key: cache.get_or_compute(b"new " + key, lambda: b"1" * 200),
    lambda cache, key: _damage(cache, entry_name(key)),
    lambda cache, key: verify_entry(cache._directory, entry_name(key), repair=True),
    lambda cache, key: recount_shard(cache._directory, int(entry_name(key)[:2], 16), 0.05),
    lambda cache, key: reap(cache._directory),
    lambda cache, key: cache.__delitem__(b"new " + key),
    lambda cache, key: cache._directory.policy.replace(Policy(5000 + key[-1])),
    lambda cache, key: Instance(cache._directory.layout).publish({}),
    lambda cache, key: cache.stats(),
)


def _work(shared: Path, begin: Callable[[], None]) -> int:
    """Run one process's life there, and then some short ones.

    Returns how often something was done despite the swaps.
    """
    done = 0
    passed = contextlib.suppress(OSError, LockcacheError, KeyError)
    with _open(shared) as cache:
        begin()
        for key in KEYS * ROUNDS:
            for do in OPERATIONS:
                with passed:
                    do(cache, key)
                    done += 1
    for _ in range(ROUNDS):
        with passed, _open(shared) as cache:
            cache.stats()
    return done


def _open(shared: Path, max_size_bytes: int = 5000) -> FileStreamProgramCache:
    arguments = {"record_files": True, "max_size_bytes": max_size_bytes, "lock_timeout_seconds": 0.02}
    return FileStreamProgramCache(shared, group=str(GROUP), **arguments)


FOLDERS = ["lockcache", "tmp", "entries", "lockcache/records", "lockcache/locks", "lockcache/leases",
           "lockcache/quarantine", f"entries/{entry_name(KEYS[0])[:2]}",
           f"lockcache/records/{entry_name(KEYS[0])[:2]}"]  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_swapped_folder_leads_nobody_out(shared, outside, folder):
    _race(shared, outside, folder, ALICE)


@pytest.mark.parametrize("folder", FOLDERS[:1])
def test_nor_root_whose_files_anybodys_may_be(shared, outside, folder):
    _race(shared, outside, folder, 0)


def _race(shared: Path, outside: Path, folder: str, uid: int) -> None:
    before = picture(outside)
    with exchanging(shared, folder, outside / folder) as begin:
        done = run_as(uid, lambda: _work(shared, begin))
    assert done > len(KEYS)
    assert picture(outside) == before


@pytest.mark.parametrize("folder", FOLDERS[-2:])
def test_nor_does_the_removal_of_one_entry(shared, outside, folder):
    """Seen to fail: with an ``os.unlink`` of the entry's path, or of its record's, in ``entry/removal.py``."""
    before = picture(outside)
    with exchanging(shared, folder, outside / folder) as begin:
        removed = run_as(ALICE, lambda: _remove(shared, begin))
    assert removed > len(NEIGHBOURS)
    assert picture(outside) == before


def _remove(shared: Path, begin: Callable[[], None]) -> int:
    """Store the same few entries and remove them, again and again; how often there was one to remove.

    What is dropped while the folder is exchanged takes no time, so that all rounds may be over in one exchange: then
    there are more.
    """
    removed = rounds = 0
    passed = contextlib.suppress(OSError, LockcacheError, KeyError)
    with _open(shared, 1 << 20) as cache:
        begin()
        while rounds < REMOVALS or removed <= len(NEIGHBOURS):
            rounds += 1
            for key in NEIGHBOURS:
                with passed:
                    cache.put_entry(key, Entry(b"y" * 300, {"label": "y"}))
            for key in NEIGHBOURS:
                with passed:
                    del cache[key]
                    removed += 1
    return removed


SCRUBS = 25
#: A sixteenth of it may be in quarantine: some entries, so that each round drops old ones for new ones.
SCRUBBED_BYTES = 16 * 8000
#: A tick ends at each shard that cannot be listed, and there are 256.
TICKS = 300
SCRUBBED = [*FOLDERS[:3], "lockcache/records", "lockcache/quarantine", FOLDERS[-2], "lockcache/scrub",
            f"entries/{entry_name(KEYS[1])[:2]}/{entry_name(KEYS[1])[2:]}"]  # fmt: skip


def _scrub(shared: Path, begin: Callable[[], None]) -> int:
    """Scrub round after round, finding damage each time. Returns how many entries were judged."""
    passed = contextlib.suppress(OSError, LockcacheError)
    judged = 0
    with _open(shared, SCRUBBED_BYTES) as cache:
        begin()
        for number in range(SCRUBS):
            for key in KEYS[:4]:
                with passed:
                    cache.put_entry(key, Entry(b"y" * 300, {"label": "y"}))
                    _damage(cache, entry_name(key))
            scrub = Scrub(OwnEntries(cache._directory), 1 << 40, Rules(interval_seconds=1e6, share_of_duty=1e6))
            for _ in range(TICKS):
                with passed:  # what fails is passed over by the next tick
                    if scrub.tick(lambda: False):
                        break
            scrub.close()
            judged += scrub.total.entries
            with passed:
                measure_quarantine(cache._directory.layout)
            if number % 5 == 4:
                with passed:
                    empty_quarantine(cache._directory)
    return judged


@pytest.mark.parametrize("place", SCRUBBED)
def test_nor_does_a_scrub_that_finds_damage_each_time(shared, outside, traps, place):
    """As root, the one who may open what is private to others. Nothing outside may even be opened.

    Seen to fail for ``lockcache/scrub``: with O_NOFOLLOW taken from the reader of small files, and with a position that
    is written in place.
    """
    with untouched(outside), leading_out(shared / place, traps, outside / place) as begin:
        assert run_as(0, lambda: _scrub(shared, begin)) > 0


def test_a_scrub_does_not_wait_for_a_fifo_in_an_entrys_place(shared, outside, traps):
    with leading_out(shared / SCRUBBED[-1], traps, None) as begin:
        assert run_as(0, lambda: _scrub(shared, begin)) > 0
