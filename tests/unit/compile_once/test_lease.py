# SPDX-License-Identifier: Apache-2.0
"""Leases: who holds one, what its file says, and that the files do not pile up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time

import pytest
from hypothesis import example, given, settings, strategies as st

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.compile_once import lease as lease_module
from lockcache.filestream.compile_once.lease import Holder, LeaseTurn, holder_of, reap_lease
from lockcache.filestream.disk.folders import open_folder
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.disk.reach import Reach
from tests.leases import take_lease
from tests.unit.forked import in_child
from tests.unit.material import property_test

NAME, OTHER = entry_name(b"k"), entry_name(b"other")


def take(layout, name=NAME, generation=0) -> LeaseTurn | None:
    return take_lease(layout, name, generation, "saxpy")


def test_a_lease_excludes_a_second_taker_of_the_same_key_only(layout):
    first = take(layout)
    assert first is not None
    assert take(layout) is None
    other, later = take(layout, OTHER), take(layout, generation=1)
    assert other is not None
    assert later is not None
    for lease in (first, other, later):
        lease.release()
    again = take(layout)
    assert again is not None
    again.release()
    assert os.listdir(layout.leases) == []


def test_a_turn_that_nobody_has_any_more_gives_its_lease_back(layout):
    lease = take(layout)
    assert lease is not None
    del lease
    assert os.listdir(layout.leases) == [], "not only its lock, which its descriptor gives back by itself"


def test_a_lease_that_is_removed_before_it_is_locked_is_made_again(layout, monkeypatch):
    lock, path = lease_module.lock_descriptor, layout.lease(NAME, 0)

    def remove_first(fd: int, *, blocking: bool) -> bool:
        monkeypatch.undo()
        os.unlink(path)
        return lock(fd, blocking=blocking)

    monkeypatch.setattr(lease_module, "lock_descriptor", remove_first)
    lease = take(layout)
    assert lease is not None
    assert os.path.exists(path)
    assert take(layout) is None
    lease.release()


def test_nobody_takes_a_lease_while_the_one_before_is_removed(layout, monkeypatch):
    """Or its removal would take the newer one away, and a third caller would compute at the same time as the second."""
    lease, taken = take(layout), []
    unlink = Reach.unlink

    def take_first(reach, path):
        taken.append(take(layout))
        unlink(reach, path)

    monkeypatch.setattr(Reach, "unlink", take_first)
    lease.release(is_published=True)
    assert taken == [None]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_lease_that_nfs_3_loses_while_it_is_taken_is_made_again(layout, monkeypatch, is_gone):
    """Its server has no open files: what another host unlinks is stale at once. A directory that is gone stays so."""
    left = take_lease(layout, NAME, 0, "")
    left.release(failed_ns=1)  # a record stays in the file, which the next holder truncates
    real_truncate = os.ftruncate

    def lose(fd, length):
        if is_gone or os.path.exists(layout.lease(NAME, 0)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(layout.lease(NAME, 0))
            raise OSError(errno.ESTALE, "stale")
        real_truncate(fd, length)

    monkeypatch.setattr(os, "ftruncate", lose)
    if is_gone:
        monkeypatch.setattr(Reach, "open_or_create", lambda *_: os.ftruncate(-1, 0))
        with pytest.raises(OSError, match="stale"):
            take_lease(layout, NAME, 0, "")
        return
    lease = take_lease(layout, NAME, 0, "")
    assert lease is not None
    assert holder_of(layout, NAME, 0).pid == os.getpid()
    lease.release()


def test_the_file_says_who_holds_the_lease(layout):
    lease = take(layout)
    holder = holder_of(layout, NAME, 0)
    assert (holder.token, holder.pid, holder.label) == (myself().host, os.getpid(), "saxpy")
    assert holder.start_ns > 0
    lease.release()
    assert holder_of(layout, NAME, 0) is None


def test_of_two_threads_that_release_at_once_one_does(layout, monkeypatch):
    """Else the second writes to a number that is a file of somebody's by then."""
    lease, cut = take(layout), os.ftruncate

    def release_again_and_cut(fd, length):
        monkeypatch.setattr(os, "ftruncate", cut)
        lease.release(failed_ns=2)
        cut(fd, length)

    monkeypatch.setattr(os, "ftruncate", release_again_and_cut)
    lease.release(failed_ns=1)
    with open(layout.lease(NAME, 0)) as file:
        assert json.load(file)["failed_ns"] == 1


def test_a_forked_child_neither_holds_nor_releases_its_parents_lease(layout):
    lease = take(layout)

    def child():
        lease.release()
        return take(layout) is None, len(os.listdir(layout.leases))

    assert in_child(child) == (True, 1)
    lease.release()


def test_a_release_that_tells_of_a_dropped_write_is_read_by_the_next_holder(layout):
    take(layout).release(failed_ns=time.time_ns())
    lease = take(layout)
    assert lease.after_failure
    lease.release()
    assert not take(layout).after_failure


def test_a_failure_of_a_while_ago_is_none(layout):
    take(layout).release(failed_ns=5)
    assert not take(layout).after_failure


def test_where_an_overdue_holder_was_taken_over_and_failed_the_lease_is_that_of_the_takeover(layout):
    overdue, takeover = take(layout), take(layout, generation=1)
    assert take(layout) is None
    overdue.release()
    assert take(layout) is None, "another one computes"
    takeover.release(failed_ns=1)  # its file stays
    last = take(layout)
    assert last.generation == 1
    last.release()
    assert os.listdir(layout.leases) == []


def test_a_file_that_replaced_ours_is_not_unlinked(layout):
    lease = take(layout)
    os.unlink(layout.lease(NAME, 0))
    newer = take(layout)
    assert newer is not None
    lease.release()
    assert take(layout) is None, "the newer lease is still held, under its name"
    newer.release()


def test_only_files_without_a_holder_are_reaped(layout):
    lease = take(layout)
    file = os.path.basename(layout.lease(NAME, 0))
    with open_folder(layout.root, "lockcache", "leases") as folder_fd:
        assert not reap_lease(folder_fd, file)
        lease.release(failed_ns=5)
        assert reap_lease(folder_fd, file)
        assert not reap_lease(folder_fd, file)


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"{}", b'{"host": 5}', b"\xff\xfe", b"[" * 3000])
def test_junk_in_a_lease_file_says_nothing(layout, junk):
    os.makedirs(layout.leases)
    with open(layout.lease(NAME, 0), "wb") as file:
        file.write(junk)
    assert holder_of(layout, NAME, 0) is None
    lease = take(layout)
    assert not lease.after_failure
    lease.release()


def test_a_planted_symlink_is_not_followed(layout, tmp_path):
    os.makedirs(layout.leases)
    target = tmp_path / "target"
    target.write_text("precious")
    os.symlink(target, layout.lease(NAME, 0))
    with pytest.raises(OSError, match="symbolic links"):
        take(layout)
    assert holder_of(layout, NAME, 0) is None
    assert target.read_text() == "precious"


def test_a_holder_of_wrong_types_is_no_holder(layout):
    os.makedirs(layout.leases)
    body = Holder("h", "t", 1, "l", 2)._replace(pid="one")
    import json

    with open(layout.lease(NAME, 0), "w") as file:
        json.dump(body._asdict(), file)
    assert holder_of(layout, NAME, 0) is None


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_lease_that_loses_its_name_while_it_is_reaped_is_not_reaped(layout, monkeypatch, is_made_again):
    path, lock, newer = layout.lease(NAME, 0), lease_module.lock_descriptor, []
    take(layout).release(failed_ns=5)

    def lose(fd: int, *, blocking: bool) -> bool:
        os.unlink(path)
        if is_made_again:
            monkeypatch.undo()
            newer.append(take(layout))
        return lock(fd, blocking=blocking)

    monkeypatch.setattr(lease_module, "lock_descriptor", lose)
    with open_folder(layout.leases) as folder:
        assert not reap_lease(folder, f"{NAME}.0")
    assert os.path.exists(path) is is_made_again


def test_where_there_is_no_file_nobody_holds_and_nothing_is_reaped(layout):
    assert holder_of(layout, NAME, 0) is None
    os.makedirs(layout.leases)
    assert holder_of(layout, NAME, 0) is None
    with open_folder(layout.leases) as folder:
        assert not reap_lease(folder, f"{NAME}.0")
        lease = take(layout)
        assert not reap_lease(folder, f"{NAME}.0")
        lease.release()


def test_a_lease_file_with_a_second_name_is_left_to_whoever_made_that(layout, tmp_path):
    os.makedirs(layout.leases)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.link(precious, layout.lease(NAME, 0))
    lease = take(layout)
    assert lease is not None
    assert precious.read_text() == "precious"
    lease.release()


_HOLDER = Holder("host", myself().host, 7, "saxpy", 1, 2)._asdict()
_NUMBERS = ("pid", "start_ns", "cost_ns", "failed_ns")


_numbers = st.integers() | st.integers(2**62, 2**70) | st.integers(10**308, 10**320) | st.floats() | st.none()


@pytest.mark.slow
@settings(property_test, max_examples=8)
@example({"start_ns": -(10**399)})
@given(st.dictionaries(st.sampled_from(_NUMBERS), _numbers))
def test_whatever_numbers_are_planted_in_a_lease_get_or_compute_raises_nothing(tmp_path_factory, numbers):
    root = tmp_path_factory.mktemp("planted") / "cache"
    with FileStreamProgramCache(root, lease_timeout_seconds=0.06) as cache:  # so that its holder's age is asked for
        with open(_plant(Layout(str(root)), json.dumps({**_HOLDER, **numbers})), "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert cache.get_or_compute(b"k", lambda: b"mine") == b"mine"
        del cache[b"k"]
        assert cache.get_or_compute(b"k", lambda: b"mine") == b"mine"  # now it is the previous holder's


def _plant(layout, text):
    os.makedirs(layout.leases, mode=0o700, exist_ok=True)
    path = layout.lease(NAME, 0)
    with open(path, "w") as file:
        file.write(text)
    return path


def test_a_copy_by_hard_links_waits_for_no_holder_in_the_other_directory(layout, tmp_path):
    name = entry_name(b"k")
    held = take_lease(layout, name, 0, "")
    copy = tmp_path / "copy"
    shutil.copytree(layout.root, copy, copy_function=os.link)
    taken = take_lease(Layout(str(copy)), name, 0, "")
    assert taken is not None
    assert take_lease(Layout(str(copy)), name, 0, "") is None
    assert take_lease(layout, name, 0, "") is None
    taken.release()
    held.release()
    assert take_lease(layout, name, 0, "") is not None


def test_a_symlink_in_a_leases_place_is_not_reaped_through(layout, tmp_path):
    os.makedirs(layout.leases)
    target = tmp_path / "target"
    target.write_text("precious")
    os.symlink(target, layout.lease(NAME, 0))
    with open_folder(layout.leases) as folder:
        assert not reap_lease(folder, f"{NAME}.0")
    assert target.read_text() == "precious"


def test_the_lease_of_a_replacement_names_what_its_key_was_stated_to_be(cache_path):
    key = b"a key whose entry lost its metadata"
    state(key, {}, "saxpy")
    with FileStreamProgramCache(cache_path) as cache:
        cache[key] = b"code"
        with cache._begin_whole(key, lambda entry: False, "") as turn:
            assert turn is not None
            [lease] = cache_path.joinpath("lockcache", "leases").iterdir()
            assert "saxpy" in lease.read_text()
