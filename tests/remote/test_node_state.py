# SPDX-License-Identifier: Apache-2.0
"""State of a process and of a node towards a server: unsent writes, and the server's folder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Layout
from lockcache.remote import backing, node_state, parse_url
from lockcache.remote.node_state import Moment, UnsentWrites
from tests.remote.servers import Valkey


@pytest.fixture
def is_held(folder: str) -> Iterator[None]:
    """Another process has the lock of the marks, and is stopped."""
    program = "import sys; from lockcache.filestream.disk import ProcessLock; lock = ProcessLock(sys.argv[1], 9.0)"
    program += "; lock.acquire(9.0); print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", program, f"{folder}/lock"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.kill()


def test_servers_that_differ_in_a_setting_share_nothing_and_no_name_is_made_of_a_secret(tmp_path: Path) -> None:
    def name_of(url: str) -> str:
        return os.path.basename(node_state.server_folder(Layout(str(tmp_path)), parse_url(url)))

    assert name_of("redis://h?db=1") != name_of("redis://h?db=2") != name_of("redis://h")
    s3 = "s3://bucket?endpoint=http://%s&access_key_id=%s&secret_access_key=%s"
    assert name_of(s3 % ("one", "a", "b")) != name_of(s3 % ("other", "a", "b"))
    assert name_of(s3 % ("one", "a", "b")) == name_of(s3 % ("one", "c", "d")), "a key that was rotated"
    assert name_of("redis://me:one@h") == name_of("redis://you:other@h") == name_of("redis://h?password=third")
    assert name_of("redis://h?ttl=5") == name_of("redis://h")


def test_two_threads_that_open_at_once_have_one_server(
    tmp_path: Path, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    together = threading.Barrier(2)

    class Late(backing.Backing):
        def __init__(self, *arguments: object) -> None:
            together.wait(30)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backing, "Backing", Late)
    opened: list[FileStreamProgramCache] = []
    threads = [threading.Thread(target=lambda: opened.append(FileStreamProgramCache(tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened[0]._backing is not None
    assert opened[0]._backing is opened[1]._backing
    for cache in opened:
        cache.close()


def test_a_write_counts_as_unsent_until_the_server_has_the_last_one() -> None:
    unsent = UnsentWrites()
    first, second = unsent.begin("k"), unsent.begin("k")
    unsent.confirm("k", first)
    assert unsent.replaces("k", 2**62)
    unsent.confirm("k", second)
    assert not unsent.replaces("k", 0)


def test_a_write_that_was_not_answered_may_arrive_after_a_later_one() -> None:
    """A read that fails closes the connection of a write, which its way to the server may still bring there."""
    unsent = UnsentWrites()
    unsent.begin("k")
    unsent.doubt("k")
    unsent.confirm("k", unsent.begin("k"))
    assert unsent.replaces("k", 2**62), "the server may have the first one by now"


def test_what_a_clock_that_was_ahead_hid_counts_once_it_is_set_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clear two days ahead: what others store afterwards is not called older until then."""
    right, ahead_ns = time.time_ns, [2 * 86400 * 10**9]
    monkeypatch.setattr(time, "time_ns", lambda: right() + ahead_ns[0])
    unsent, before_ns = UnsentWrites(), right() - 5 * 10**9
    unsent.replace_all(Moment.now())
    assert unsent.replaces("k", right())
    ahead_ns[0] = 0
    assert not unsent.replaces("k", right() + 3 * 10**9)
    assert unsent.replaces("k", before_ns)


def test_more_unsent_writes_than_are_remembered_replace_all_that_was_stored_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_state, "_MOST_UNSENT", 2)
    unsent, before_ns = UnsentWrites(), time.time_ns()
    for name in ("a", "b", "c"):
        unsent.begin(name)
    assert all(unsent.replaces(name, before_ns) for name in ("a", "b", "c", "another"))
    assert not unsent.replaces("another", time.time_ns())
