"""With a server behind a directory, nothing that was replaced or removed on a node comes back there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache
from lockcache.filestream.backing import Backing
from lockcache.filestream.disk import Layout, entry_name
from lockcache.filestream.entry import Record
from lockcache.filestream.writer import EntryWriter
from lockcache_stress.trouble import can_mount, mounted_tmpfs
from tests.remote.servers import Valkey

pytestmark = pytest.mark.usefixtures("behind_directories")

_NAME = entry_name(b"k")
_HOUR_NS = 3600 * 10**9


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FileStreamProgramCache]:
    """The directory of a node that lacks what the server has."""
    with FileStreamProgramCache(tmp_path / "other node") as other:
        other["k"] = b"older"
    with FileStreamProgramCache(tmp_path / "node") as cache:
        yield cache


def _behind(cache: FileStreamProgramCache) -> Backing:
    assert cache._backing is not None
    return cache._backing


def _elsewhere(cache: FileStreamProgramCache, words: str) -> str:
    """Returns what another process of the node prints, which does that with its ``cache``."""
    program = (
        f"import sys; from lockcache import *; cache = FileStreamProgramCache(sys.argv[1]); {words}; cache.close()"
    )
    return subprocess.check_output([sys.executable, "-c", program, cache.path], text=True).strip()


def _evict(cache: FileStreamProgramCache) -> None:
    os.unlink(Layout(cache.path).entry(_NAME))


def _on_server(server: Valkey) -> bytes | None:
    with RemoteProgramCache(server.url) as remote:
        return remote.get("k")


def _before(owner: object, method: str, act: Callable[[], object], *, after: bool = False) -> Any:
    """A patch of ``method``, the first call of which is preceded by ``act``, or followed."""
    real, patch = getattr(owner, method), pytest.MonkeyPatch()

    def call(*arguments: Any, **named: Any) -> Any:
        patch.undo()
        if not after:
            act()
        result = real(*arguments, **named)
        if after:
            act()
        return result

    patch.setattr(owner, method, call)
    return patch


@pytest.mark.parametrize("act", ["del cache['k']", "cache.clear()"])
def test_what_another_process_removes_while_an_answer_is_on_its_way_does_not_come_back(
    act: str, node: FileStreamProgramCache, server: Valkey
) -> None:
    _before(_behind(node).store, "load", lambda: _elsewhere(node, act), after=True)
    assert node.get("k") == b"older", "it was asked for before"
    assert len(node) == 0
    server.client.flushall()  # which clear() leaves as it is
    assert node.get("k") is None
    assert _elsewhere(node, "print(cache.get('k'))") == "None"


def test_what_is_removed_between_a_copy_and_its_check_does_not_stay_where_locks_exclude_nobody(
    node: FileStreamProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_missing = EntryWriter.store_missing

    def store_without_a_look(writer: EntryWriter, name: str, payload: bytes, record: Record, *_: object) -> object:
        _elsewhere(node, "del cache['k']")
        return store_missing(writer, name, payload, record)

    monkeypatch.setattr(EntryWriter, "store_missing", store_without_a_look)
    assert node.get("k") == b"older"
    assert len(node) == 0


def test_what_was_written_and_evicted_while_an_older_answer_was_on_its_way_does_not_come_back(
    node: FileStreamProgramCache,
) -> None:
    def write_elsewhere() -> None:
        _elsewhere(node, "cache['k'] = b'newer'")
        _evict(node)

    _before(_behind(node).store, "load", write_elsewhere, after=True)
    node.get("k")
    assert node.get("k") == b"newer"


def test_what_another_key_of_a_group_loses_is_a_copy(node: FileStreamProgramCache) -> None:
    other = next(name for number in range(10**6) if (name := f"{number:064x}")[-4:] == _NAME[-4:])
    _before(_behind(node).store, "load", lambda: _behind(node).seen.mark(other), after=True)
    assert node.get("k") == b"older"
    assert len(node) == 0
    assert node.get("k") == b"older"
    assert len(node) == 1


def test_nobody_reads_the_older_value_between_a_dropped_write_and_its_sending(tmp_path: Path, server: Valkey) -> None:
    found = []
    with FileStreamProgramCache(tmp_path, max_size_bytes="100K") as cache:
        cache["k"] = b"older"
        _behind(cache).store.flush()
        _before(EntryWriter, "store", lambda: found.append(_elsewhere(cache, "print(cache.get('k'))")), after=True)
        cache["k"] = b"newer" * 100_000
        assert found == ["None"]
        assert len(cache) == 0
    assert _on_server(server) == b"newer" * 100_000


def test_an_older_copy_is_not_sent_in_place_of_a_dropped_write(tmp_path: Path, server: Valkey) -> None:
    may_send = threading.Event()
    with FileStreamProgramCache(tmp_path, max_size_bytes="100K") as cache:
        cache["k"] = b"older"
        store = _behind(cache).store
        store.flush()
        store.sender().send(may_send.wait, lambda: None)
        cache["k"] = b"newer" * 100_000
        cache._writer.store_missing(_NAME, b"older", Record(5, time.time_ns() - _HOUR_NS, 0, b""))
        may_send.set()
    assert _on_server(server) == b"newer" * 100_000


@pytest.mark.parametrize("act, left", [("cache['k'] = b'newer'", b"newer"), ("del cache['k']", None)])
def test_a_value_that_arrives_behind_a_newer_one_of_another_process_does_not_stay_on_the_server(
    act: str, left: bytes | None, tmp_path: Path, server: Valkey
) -> None:
    with FileStreamProgramCache(tmp_path) as cache:
        store = _behind(cache).store
        _before(store, "put", lambda: _elsewhere(cache, act))
        cache["k"] = b"older"
        for _ in range(2):  # what is to be sent, and what that has found is to be sent again
            is_sent = threading.Event()
            store.sender().send(lambda is_sent=is_sent: is_sent.set() is None, lambda: None)
            assert is_sent.wait(60)
        assert cache.get("k") == left
    assert _on_server(server) == left
    assert list(tmp_path.glob("lockcache/remote/*/unsent/*")) == []


@pytest.mark.parametrize("act", ["cache['k'] = b'newer'", "del cache['k']"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_arrives_behind_a_newer_one_is_not_read_however_long_its_sender_takes_to_notice(
    act: str, is_killed: bool, tmp_path: Path, server: Valkey
) -> None:
    program = f"""
import signal, subprocess, sys, threading
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
send = cache._backing.store.put
def put(name, value):
    elsewhere = "import sys; from lockcache import *; cache = FileStreamProgramCache(sys.argv[1])\\n"
    subprocess.run([sys.executable, "-c", elsewhere + {act!r}, sys.argv[1]], check=True)
    print(send(name, value), flush=True)
    threading.Event().wait()
cache._backing.store.put = put
cache["k"] = b"older"
signal.pause()
"""
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", program, str(tmp_path)]
        sender = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(sender.kill)
        assert sender.stdout is not None
        assert sender.stdout.readline() == "True\n"
        if is_killed:
            sender.kill()
            sender.wait()
        assert _on_server(server) == b"older"
        Path(Layout(str(tmp_path)).entry(_NAME)).unlink(missing_ok=True)
        with FileStreamProgramCache(tmp_path) as cache:
            assert _elsewhere(cache, "print(cache.get('k'))") == "None"


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("is_full", [False, True])
def test_clear_is_remembered_on_a_full_disk(is_full: bool, tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("needs root, to mount a small disk")
    with mounted_tmpfs(str(tmp_path), "3m") as is_mounted:
        if not is_mounted:
            pytest.skip("nothing may be mounted here")
        with FileStreamProgramCache(tmp_path / "d") as cache:
            cache["k"] = b"older"
        if is_full:
            _fill(tmp_path / "ballast")
        _elsewhere(cache, "cache.clear()")
        (tmp_path / "ballast").unlink(missing_ok=True)
        assert _elsewhere(cache, "print(cache.get('k'))") == "None"


@pytest.fixture
def ahead(server: Valkey, tmp_path: Path) -> Iterator[FileStreamProgramCache]:
    """A node, and on the server a value of another one, whose clock is an hour ahead."""
    with pytest.MonkeyPatch.context() as patch:
        now_ns = time.time_ns
        patch.setattr(time, "time_ns", lambda: now_ns() + _HOUR_NS)
        with FileStreamProgramCache(tmp_path / "other node") as other:
            other["k"] = b"older"
    with FileStreamProgramCache(tmp_path / "node") as cache:
        yield cache


def test_a_removal_is_later_than_what_it_removes_whatever_the_clocks_say(ahead: FileStreamProgramCache) -> None:
    store = _behind(ahead).store
    found = store.load(_NAME)
    assert found is not None
    del ahead["k"]
    store.flush()
    _behind(ahead).reads(
        ahead._writer, lambda name: None, ahead._reader, None, None, dict.fromkeys(["evictions"], 0)
    )._kept(_NAME, found, _behind(ahead).seen.stamps())
    assert len(ahead) == 0


def test_a_write_is_later_than_what_it_replaces_whatever_the_clocks_say(ahead: FileStreamProgramCache) -> None:
    assert ahead.get("k") == b"older"
    ahead["k"] = b"newer"
    _behind(ahead).store.flush()
    _evict(ahead)
    assert ahead.get("k") == b"newer"
    assert _behind(ahead).store.counts.stale_entries == 0
