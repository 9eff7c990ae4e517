# SPDX-License-Identifier: Apache-2.0
"""A directory that is deleted in the middle of a write, and many threads that attach to a new one at once."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.network_pages import NfsPage
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.entry.staging import StagedEntry
from tests.matrix_sampling import diagonals
from tests.races.steps import alongside, into, stop_before
from tests.unit.material import on_disk, open_directory


@pytest.mark.parametrize(
    "step, what",
    diagonals(
        ["reserve", "set_attributes", "write", "publish", "rename"],
        ["", "tmp", "entries", "lockcache", "lockcache/locks", "lockcache/state"],
        2,
    ),
)
def test_whatever_is_deleted_in_the_middle_of_a_write_it_ends_and_is_read(make, one, monkeypatch, step, what):
    one["k"] = b"older"
    if step == "rename":
        stop = stop_before(monkeypatch, os, "rename", into("entries"))
    else:
        stop = stop_before(monkeypatch, StagedEntry, step)
    path = os.path.join(one.path, what)
    with alongside(one.__setitem__, "k", b"newer"):
        stop.wait_until_reached()
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        stop.go_on()
    assert one["k"] == b"newer"
    assert one.stats().dropped_writes == 0
    if what in ("entries", "lockcache/locks") or step != "reserve":
        one.recount()  # what was on its way when its accounting vanished is what a recount is for
    make()["other"] = b"x"


@pytest.mark.parametrize("kind", ["", "nfs4"])
def test_a_page_that_is_made_again_has_what_is_written_meanwhile(cache_path, monkeypatch, kind):
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: kind)
    monkeypatch.setattr(NfsPage, "ways", NfsPage.ways[1:])  # a local disk takes whole blocks only
    stop, has_written = threading.Event(), threading.Event()
    with FileStreamProgramCache(cache_path) as writer:

        def write():
            for number in itertools.count():
                writer[f"{number}"] = b"x" * 100
                has_written.set()
                if stop.is_set():
                    return

        with alongside(write):
            assert has_written.wait(60)
            os.unlink(Layout(str(cache_path)).state)
            with FileStreamProgramCache(cache_path) as maker:
                made_with = maker.stats().entries
                has_written.clear()
                assert has_written.wait(60)
                stop.set()
        assert writer.stats().dropped_writes == 0
        assert (writer.stats().bytes, writer.stats().entries) == on_disk(cache_path)
        assert writer.stats().entries > made_with > 0


def test_many_caches_that_make_one_directory_at_once_agree_on_one_page(cache_path):
    threads = 8
    start = threading.Barrier(threads)

    def work(number):
        start.wait(60)
        with FileStreamProgramCache(cache_path) as cache:
            cache[f"{number}"] = b"x" * 100
            return os.stat(Layout(str(cache_path)).state).st_ino

    with ThreadPoolExecutor(threads) as pool:
        assert len(set(pool.map(work, range(threads)))) == 1
    directory = open_directory(cache_path)
    assert directory.usage().total() == on_disk(cache_path) == (800, 8)
    directory.close()
