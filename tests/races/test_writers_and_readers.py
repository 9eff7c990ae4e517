# SPDX-License-Identifier: Apache-2.0
"""Writers of one key next to each other and next to readers, in every order of their steps."""

from __future__ import annotations

import os

import pytest

from lockcache import Entry
from lockcache.filestream.disk.reach import Reach
from lockcache.filestream.entry import reader
from lockcache.filestream.entry.staging import StagedEntry
from tests.races.steps import alongside, into, stop_after, stop_before

OLD, NEW, NEWEST = (Entry(name * 50, {"of": name}) for name in (b"old", b"new", b"newest"))


def test_of_two_writers_of_one_key_the_one_that_publishes_last_stays(one, other, monkeypatch):
    stop = stop_before(monkeypatch, StagedEntry, "publish")
    with alongside(one.put_entry, "k", NEW):
        stop.wait_until_reached()  # staged, holding no lock
        other.put_entry("k", OLD)
        assert one.get_entry("k") == other.get_entry("k") == OLD
        stop.go_on()
    assert one.get_entry("k") == other.get_entry("k") == NEW


@pytest.mark.parametrize("step", [stop_before, stop_after])
@pytest.mark.parametrize("older", [None, OLD], ids=["new-key", "replacing"])
def test_a_second_writer_waits_for_the_first_ones_rename_and_then_replaces_it(one, other, monkeypatch, step, older):
    if older:
        one.put_entry("k", older)
    stop = step(monkeypatch, os, "rename", into("entries"))
    with alongside(one.put_entry, "k", NEW):
        stop.wait_until_reached()  # in the middle of publishing, holding the shard lock
        with alongside(other.put_entry, "k", NEWEST):
            stop.go_on()
    assert one.get_entry("k") == other.get_entry("k") == NEWEST


def test_once_a_write_has_returned_nobody_reads_an_older_value(one, other, monkeypatch):
    one.put_entry("k", OLD)
    stop = stop_after(monkeypatch, StagedEntry, "publish")
    with alongside(one.put_entry, "k", NEW):
        stop.wait_until_reached()
        assert other.get_entry("k") == NEW  # even a moment before
        stop.go_on()
    assert other.get_entry("k") == NEW


@pytest.mark.parametrize("step", [stop_before, stop_after])
@pytest.mark.parametrize("folder", ["records", "entries"])
@pytest.mark.parametrize("older", [None, OLD], ids=["new-key", "replacing"])
def test_whoever_reads_at_any_rename_of_a_publish_gets_old_or_new_and_never_a_mixture(
    one, other, record_files, monkeypatch, step, folder, older
):
    if folder == "records" and not record_files:
        folder = "entries"
    if older:
        one.put_entry("k", older)
    stop = step(monkeypatch, os, "rename", into(folder))
    with alongside(one.put_entry, "k", NEW):
        stop.wait_until_reached()
        for cache in (one, other):
            assert cache.get_entry("k") in (older, NEW)
            assert cache.get("k") in (older and older.code, NEW.code)
            # It is not damage either, and a replace is not a reason to miss.
            assert (cache.stats().corrupt_entries, cache.stats().unverified_hits) == (0, 0)
        stop.go_on()
    assert one.get_entry("k") == NEW


@pytest.mark.parametrize("change", ["replaced", "deleted", "deleted and written"])
@pytest.mark.parametrize("call", ["_getxattr", "_read_fd", "_close"])
def test_a_reader_that_has_the_entry_open_while_it_changes_gets_a_whole_entry_or_none(
    one, other, record_files, monkeypatch, change, call
):
    one.put_entry("k", OLD)
    other.get_entry("k")
    carefully = {"_read_fd": "read_all", "_close": "_closerange"} if record_files else {}
    stop = stop_before(monkeypatch, reader, carefully.get(call, call))
    with alongside(other.get_entry, "k") as reading:
        stop.wait_until_reached()
        if change != "replaced":
            del one["k"]
        if change != "deleted":
            one.put_entry("k", NEW)
        stop.go_on()
    assert reading.result() in (OLD, NEW, None)
    stats = other.stats()
    assert (stats.corrupt_entries, stats.unverified_hits) == (0, 0)


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_reader_between_the_payload_and_its_record_file_gets_a_whole_entry_or_none(
    one, other, record_files, monkeypatch, change
):
    if not record_files:
        pytest.skip("payload and record are one file here")
    one.put_entry("k", OLD)
    stop = stop_before(monkeypatch, Reach, "open", lambda reach, path, *_: "/records/" in path)
    with alongside(other.get_entry, "k") as reading:
        stop.wait_until_reached()
        if change == "deleted":
            del one["k"]
        else:
            one.put_entry("k", NEW)
        stop.go_on()
    assert reading.result() in ((NEW,) if change == "replaced" else (OLD, None))
    stats = other.stats()
    assert (stats.corrupt_entries, stats.unverified_hits) == (0, 0)


def test_a_reader_never_sees_an_entry_lose_its_record_when_it_moves_into_the_attribute(cache_path, monkeypatch):
    from lockcache import FileStreamProgramCache

    with FileStreamProgramCache(cache_path, record_files=True) as files, FileStreamProgramCache(cache_path) as other:
        files.put_entry("k", OLD)
        seen = []
        for name in ("rename", "unlink"):
            real = getattr(os, name)

            def looking(*arguments, real=real, **keywords):
                result = real(*arguments, **keywords)
                seen.append(files.get_entry("k"))
                return result

            monkeypatch.setattr(os, name, looking)
        other.put_entry("k", NEW)
        monkeypatch.undo()
        assert seen
        assert all(entry in (OLD, NEW) for entry in seen)
        assert files.stats().unverified_hits == 0
        assert (other.stats().bytes, other.stats().entries) == (len(NEW.code), 1)


@pytest.mark.parametrize("first", ["delete", "write"])
def test_a_delete_beside_a_publish_ends_with_one_of_both_orders(one, other, monkeypatch, first):
    one.put_entry("k", OLD)
    if first == "delete":
        stop = stop_before(monkeypatch, os, "unlink", lambda path, *_: "/entries/" in path)
        with alongside(other.__delitem__, "k"):
            stop.wait_until_reached()  # the deleter holds the lock
            with alongside(one.put_entry, "k", NEW):
                stop.go_on()
        assert one.get_entry("k") == NEW
    else:
        stop = stop_before(monkeypatch, os, "rename", into("entries"))
        with alongside(one.put_entry, "k", NEW):
            stop.wait_until_reached()
            with alongside(other.__delitem__, "k"):
                stop.go_on()
        assert one.get_entry("k") is None


def test_a_delete_between_stage_and_publish_does_not_take_the_new_value(one, other, monkeypatch):
    one.put_entry("k", OLD)
    stop = stop_before(monkeypatch, StagedEntry, "publish")
    with alongside(one.put_entry, "k", NEW):
        stop.wait_until_reached()
        del other["k"]
        assert other.get_entry("k") is None
        stop.go_on()
    assert one.get_entry("k") == other.get_entry("k") == NEW


def test_clear_in_the_middle_of_its_walk_beside_a_new_value_removes_or_keeps_it_whole(one, other, monkeypatch):
    one.put_entry("k", OLD)
    stop = stop_before(monkeypatch, os, "unlink", lambda path, *_: "/entries/" in path)
    with alongside(other.clear):
        stop.wait_until_reached()
        one.put_entry("elsewhere", NEW)
        stop.go_on()
    assert one.get_entry("elsewhere") in (NEW, None)
    assert one.get_entry("k") is None
