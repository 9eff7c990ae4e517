# SPDX-License-Identifier: Apache-2.0
"""A directory that a group shares, tried with two real users: what one stores the other hits, evicts and replaces."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, UnsafeCacheDirError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.lowlevel import read_status
from tests.access.group_members import ALICE, BOB, GROUP, MALLORY, as_member, run_as, run_meanwhile_as, start_as
from tests.daemon.daemon_process import until
from tests.unit.material import entry_path, on_disk, set_last_use

pytestmark = pytest.mark.root


def store(key, value):
    return lambda cache: cache.__setitem__(key, value)


def modes(root: Path) -> tuple[set[int], set[int], set[int]]:
    folders, files, groups = set(), set(), set()
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        (folders if stat.S_ISDIR(status.st_mode) else files).add(stat.S_IMODE(status.st_mode))
        groups.add(status.st_gid)
    return folders, files, groups


def use_everything(cache):
    cache.update({b"%d" % number: b"x" * 100 for number in range(40)})
    cache.put_entry(b"tail", Entry(b"x", {"long": "x" * 10_000}))
    cache.get_or_compute(b"computed", lambda: b"1")
    cache.get(b"tail")
    cache.recount()
    del cache[b"0"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("record_files", [False, True])
def test_everything_is_the_groups_whatever_the_umask(shared, umask, record_files):
    run_as(ALICE, as_member(shared, use_everything, max_size_bytes=20_000, record_files=record_files), umask=umask)
    run_as(BOB, as_member(shared, use_everything, record_files=record_files), umask=umask)
    assert modes(shared) == ({0o2770}, {0o660}, {GROUP})


@pytest.mark.parametrize("record_files", [False, True])
def test_one_stores_and_the_other_hits_replaces_and_deletes(shared, record_files):
    run_as(ALICE, as_member(shared, lambda c: c.put_entry(b"k", Entry(b"alice", {"a": 1})), record_files=record_files))

    def by_bob(cache):
        assert [cache.get_entry(b"k") for _ in range(3)] == [Entry(b"alice", {"a": 1})] * 3
        assert (cache.stats().hits, cache.stats().corrupt_entries) == (3, 0)
        cache[b"k"] = b"bob"
        cache[b"gone"] = b"1"

    run_as(BOB, as_member(shared, by_bob, record_files=record_files))

    def by_alice(cache):
        assert cache[b"k"] == b"bob"
        del cache[b"gone"]
        cache.clear()
        assert (cache.stats().entries, cache.stats().bytes, len(cache)) == (0, 0, 0)

    run_as(ALICE, as_member(shared, by_alice, record_files=record_files))


def test_a_hit_by_another_member_keeps_an_entry_from_eviction(shared):
    """Setting an explicit time takes ownership; a member who may only write says "now"."""

    def fill(cache):
        for number in range(10):
            cache[b"%d" % number] = b"x" * 100
            set_last_use(entry_path(shared, b"%d" % number), 10**9 + number)

    run_as(ALICE, as_member(shared, fill, max_size_bytes=1000))
    run_as(BOB, as_member(shared, lambda cache: [cache[b"0"], cache[b"2"]]))

    def push_out(cache):
        cache[b"new"] = b"x" * 300
        return [number for number in range(10) if cache.get(b"%d" % number) is not None]

    left = run_as(BOB, as_member(shared, push_out))
    assert left == [0, 2, *range(5, 10)]
    assert on_disk(shared).bytes == 1000


@pytest.mark.long
def test_the_cap_holds_over_what_several_members_store(shared):
    def fill(cache):
        for number in range(60):
            cache[b"%d-%d" % (os.getuid(), number)] = b"x" * 100
        assert on_disk(shared).bytes <= 2000
        return cache.stats().dropped_writes

    for uid in (ALICE, BOB, ALICE):
        assert run_as(uid, as_member(shared, fill, max_size_bytes=2000)) == 0


@pytest.mark.parametrize("left_by, reaped_by", [(ALICE, BOB), (BOB, ALICE)])
def test_what_a_killed_member_left_staged_another_one_reaps(shared, left_by, reaped_by):
    def stage():
        StagedEntry(CacheDirectory(str(shared), 1.0, group=True), "ab" * 32, 500).reserve()

    with start_as(left_by, stage):
        run_as(reaped_by, as_member(shared, lambda cache: cache.recount()))
        assert on_disk(shared).bytes == 500  # it lives
    # By its opening, once the file is a second old, or by the recount.
    run_as(reaped_by, as_member(shared, lambda cache: cache.recount()))
    left = run_as(reaped_by, as_member(shared, lambda cache: cache.stats().bytes))
    assert (left, on_disk(shared).bytes, os.listdir(shared / "tmp")) == (0, 0, [])


def test_a_member_who_waits_takes_over_from_a_killed_one(shared):
    from lockcache.filestream.disk.layout import entry_name
    from tests.leases import take_lease

    leases = []

    def take():
        FileStreamProgramCache(shared, group=True).close()
        leases.append(take_lease(Layout(str(shared)), entry_name(b"k")))
        assert leases[0] is not None

    with start_as(ALICE, take):
        pass
    assert run_as(BOB, as_member(shared, lambda cache: cache.get_or_compute(b"k", lambda: b"1"))) == b"1"


def run_daemon(*arguments: str) -> int:
    from lockcache_daemon.command import run

    return run(arguments)


@pytest.mark.long
def test_a_daemon_of_one_member_keeps_what_another_writes_under_its_cap(shared):
    write = as_member(shared, lambda cache: cache.update({b"%d" % n: b"x" * 1000 for n in range(50)}))
    run_as(ALICE, write)
    assert run_as(BOB, lambda: run_daemon("--max-size", "20K", "--once", "--group", "yes", str(shared))) == 0
    assert on_disk(shared).bytes <= 20_000
    run_as(ALICE, write)  # which obeys the policy that the other one wrote
    assert on_disk(shared).bytes <= 20_000
    assert modes(shared) == ({0o2770}, {0o660}, {GROUP})


def test_a_daemon_without_the_option_refuses_a_shared_directory_and_so_does_a_rehearsal(shared, capfd):
    run_as(ALICE, as_member(shared, store(b"k", b"1")))
    for how in ("--once", "--dry-run"):
        assert run_as(ALICE, lambda: run_daemon("--max-size", "20K", how, str(shared))) == 2  # noqa: B023 - at once
        assert "--group" in capfd.readouterr().err
        assert run_as(ALICE, lambda: run_daemon("--max-size", "2K", how, "--group", "yes", str(shared))) == 0  # noqa: B023
    assert run_as(ALICE, lambda: run_daemon("--max-size", "20K", "--group", "nobody-has-this", str(shared))) == 2
    assert "no group is called 'nobody-has-this'" in capfd.readouterr().err


@pytest.mark.long
def test_two_daemons_of_two_users_exclude_each_other(shared):
    options = ("--max-size", "20K", "--group", "yes", str(shared))
    with run_meanwhile_as(ALICE, lambda: run_daemon("--interval", "50ms", *options)):
        until((shared / "lockcache" / "daemon.json").exists)
        assert run_as(BOB, lambda: run_daemon("--once", *options)) == 3
        run_as(ALICE, as_member(shared, lambda cache: cache.update({b"%d" % n: b"x" * 1000 for n in range(20)})))
        until(lambda: read_status(Layout(str(shared))).get("evicted_entries", 0) >= 1)


def test_who_is_no_member_is_not_served_from_the_directory_of_a_stranger_whose_group_all_may_read(shared):
    run_as(ALICE, as_member(shared, store(b"k", b"planted")))
    for path in [shared, *shared.rglob("*")]:
        path.chmod(0o2775 if path.is_dir() else 0o664)
    os.chown(shared, ALICE, GROUP)
    with pytest.raises(UnsafeCacheDirError, match="not a member"):
        run_as(MALLORY, as_member(shared, lambda cache: cache.get(b"k")))
    assert run_as(BOB, as_member(shared, lambda cache: cache.get(b"k"))) == b"planted"


@pytest.mark.parametrize(
    "owner, group, groups, is_served",
    [
        (ALICE, True, [], False),
        (ALICE, str(GROUP), [], True),
        (ALICE, True, [GROUP], True),
        (0, True, [], True),
        (0, str(GROUP), [], True),
    ],
    ids=["of a stranger", "named", "as a member", "its own", "its own, named"],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_root_is_a_member_of_the_groups_that_it_is_in(shared, owner, group, groups, is_served, read_only):
    """It may write anything, and any user can have a directory that looks like a shared one.

    Also to read: who reads an entry runs it.
    """
    os.chown(shared, owner, GROUP)
    run_as(ALICE, as_member(shared, store(b"k", b"planted")))

    def get():
        os.setgroups(groups)
        with FileStreamProgramCache(shared, group=group, read_only=read_only) as cache:
            return cache.get(b"k")

    if is_served:
        assert run_as(0, get) == b"planted"
    else:
        with pytest.raises(UnsafeCacheDirError, match=f"LOCKCACHE_GROUP={GROUP}"):
            run_as(0, get)


def test_a_shared_directory_is_refused_to_who_did_not_ask_for_one_with_both_ways_out(shared, monkeypatch):
    run_as(ALICE, as_member(shared, store(b"k", b"1")))
    with pytest.raises(UnsafeCacheDirError, match="LOCKCACHE_GROUP=1"):
        run_as(ALICE, lambda: FileStreamProgramCache(shared))
    with pytest.raises(UnsafeCacheDirError, match="belongs to uid"):
        run_as(BOB, lambda: FileStreamProgramCache(shared))
    monkeypatch.setenv("LOCKCACHE_GROUP", "1")

    def get():
        with FileStreamProgramCache(shared) as cache:
            return cache.get(b"k")

    assert run_as(BOB, get) == b"1"
    monkeypatch.setenv("LOCKCACHE_GROUP", "0")
    with pytest.raises(UnsafeCacheDirError) as refused:
        run_as(ALICE, lambda: FileStreamProgramCache(shared))
    subprocess.run(str(refused.value).rpartition("Run: ")[2], shell=True, check=True)
    assert run_as(ALICE, get) == b"1"


def test_a_private_directory_is_not_shared_by_asking_but_by_the_command_that_is_named(home):
    path = home / "with a space"
    path.mkdir(mode=0o700)
    os.chown(path, ALICE, ALICE)
    run_as(ALICE, lambda: FileStreamProgramCache(path, group=False).__setitem__(b"k", b"1"))
    with pytest.raises(UnsafeCacheDirError, match="is not shared with its group") as refused:
        run_as(ALICE, as_member(path, store(b"l", b"1")))
    command = str(refused.value).rpartition("Run: ")[2]
    subprocess.run(command.replace(f"chgrp -R {ALICE}", f"chgrp -R {GROUP}"), shell=True, check=True)
    assert run_as(BOB, as_member(path, lambda cache: (cache.__setitem__(b"l", b"2"), cache.get(b"k"))[1])) == b"1"


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_a_new_directory_is_made_for_the_group(home, what):
    path = home / "new"
    if what == "empty":
        path.mkdir()
        os.chown(path, ALICE, ALICE)

    def use():
        with FileStreamProgramCache(path, group=str(GROUP)) as cache:
            use_everything(cache)

    run_as(ALICE, use)
    run_as(BOB, as_member(path, use_everything))
    assert modes(path) == ({0o2770}, {0o660}, {GROUP})


def test_a_shared_directory_that_is_deleted_underneath_is_made_for_the_same_group_again(home):
    path = home / "new"

    def use():
        with FileStreamProgramCache(path, group=str(GROUP)) as cache:
            cache[b"k"] = b"1"
            subprocess.run(["rm", "-r", str(path)], check=True)
            cache[b"k"] = b"2"

    run_as(ALICE, use)
    assert modes(path) == ({0o2770}, {0o660}, {GROUP})
    assert run_as(BOB, as_member(path, lambda cache: cache[b"k"])) == b"2"


@pytest.mark.long
@pytest.mark.parametrize(
    "mode, gid, wrong",
    [
        (0o2777, GROUP, "by everybody"),
        (0o3770, GROUP, "sticky"),
        (0o770, GROUP, "is not shared"),
        (0o2750, GROUP, "is not shared"),
        (0o2770, ALICE, "another group"),
    ],
)
@pytest.mark.parametrize("folder", ["", "entries", "tmp", "lockcache", "lockcache/locks"])
def test_a_folder_that_is_not_as_the_group_needs_it_is_refused_with_the_command_that_mends_it(
    shared, folder, mode, gid, wrong
):
    run_as(ALICE, as_member(shared, store(b"k", b"1")))
    os.chown(shared / folder, ALICE, gid)
    (shared / folder).chmod(mode)

    def get():
        with FileStreamProgramCache(shared, group=str(GROUP)) as cache:
            return cache.get(b"k")

    with pytest.raises(UnsafeCacheDirError, match=wrong) as refused:
        run_as(ALICE, get)
    assert refused.value.path == str(shared / folder).rstrip("/")
    subprocess.run(str(refused.value).rpartition("Run: ")[2], shell=True, check=True)
    assert run_as(BOB, get) == b"1"


def test_another_group_than_the_directorys_is_refused(shared):
    with pytest.raises(UnsafeCacheDirError, match="another group than 54999"):
        run_as(BOB, lambda: FileStreamProgramCache(shared, group="54999"))
    with pytest.raises(ValueError, match="no group is called 'nobody-has-this'"):
        FileStreamProgramCache(shared, group="nobody-has-this")


@pytest.mark.parametrize("arguments", [("stats",), ("recount",), ("policy", "set", "--max-size", "1M"),
                                       ("clear", "--yes")], ids=" ".join)  # fmt: skip
def test_the_operators_commands_share_as_the_environment_says(shared, arguments, monkeypatch, capfd):
    from lockcache.cli.program import run

    run_as(ALICE, as_member(shared, store(b"k", b"1")))
    assert run_as(ALICE, lambda: run([*arguments, str(shared)])) == 2
    assert "LOCKCACHE_GROUP=1" in capfd.readouterr().err
    monkeypatch.setenv("LOCKCACHE_GROUP", "1")
    assert run_as(BOB, lambda: run([*arguments, str(shared)])) == 0
    assert modes(shared) == ({0o2770}, {0o660}, {GROUP})


def test_a_lock_file_never_stands_there_unusable_for_the_others(shared, monkeypatch):
    """Made without a name, given its mode, then linked: a death in between leaves nothing."""
    run_as(ALICE, as_member(shared, lambda cache: None))

    def die_before_the_mode_is_set():
        import lockcache.filestream.disk.folders as folders

        folders.share_file = lambda fd: os._exit(0)
        FileStreamProgramCache(shared, group=True)[b"k"] = b"1"

    with contextlib.suppress(EOFError):
        run_as(ALICE, die_before_the_mode_is_set)
    assert run_as(BOB, as_member(shared, lambda cache: (cache.__setitem__(b"k", b"2"), cache[b"k"])[1])) == b"2"
