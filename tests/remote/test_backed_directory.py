# SPDX-License-Identifier: Apache-2.0
"""``$LOCKCACHE_REMOTE``: a server behind the directories of programs that never heard of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, RemoteProgramCache
from lockcache.filestream.disk import Layout, entry_name
from lockcache.filestream.entry import Record
from lockcache.remote import RemoteStore, backing, parse_url
from tests.cli.command import run
from tests.remote.servers import FaultProxy, Valkey, free_port

pytestmark = pytest.mark.usefixtures("behind_directories")


def _evict(path: Path, key: bytes) -> None:
    """Remove an entry as an eviction does, as far as a reader sees."""
    os.unlink(Layout(str(path)).entry(entry_name(key)))


def _forget() -> None:
    """Drop what is in memory, so that this is like another process of the node."""
    for each in backing._backings.values():
        each.store.close()
    backing._backings.clear()


def _read_elsewhere(path: Path, key: str) -> str:
    program = "import sys; from lockcache import *; print(FileStreamProgramCache(sys.argv[1]).get(sys.argv[2]))"
    return subprocess.check_output([sys.executable, "-c", program, str(path), key], text=True).strip()


def test_what_one_node_stores_another_reads_and_keeps(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "one") as one:
        one.put_entry("k", Entry(b"v", {"arch": "sm_90", "compile_cost_ns": 7}))
    with FileStreamProgramCache(tmp_path / "other") as other:
        assert other.get("k") == b"v"
        assert other.get_entry("k") == Entry(b"v", {"arch": "sm_90", "compile_cost_ns": 7})
        assert other.get("missing") is None
        stats = other.stats()
    assert (stats.hits, stats.misses, stats.puts, stats.entries) == (2, 1, 0, 1)
    server.client.flushall()
    assert _read_elsewhere(tmp_path / "other", "k") == "b'v'", "from its own directory"


def test_without_the_variable_nothing_is_asked(server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKCACHE_REMOTE")
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"v"
    assert server.client.dbsize() == 0
    assert not (tmp_path / "lockcache" / "remote").exists()
    program = (
        "import sys, lockcache; lockcache.FileStreamProgramCache(sys.argv[1]).get('k'); "
        "print('redis' in sys.modules, 'lockcache.remote.backing' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program, str(tmp_path)], text=True) == "False False\n"


def test_a_process_does_not_read_back_what_its_own_unsent_write_replaced(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"older"
    server.client.config_set("maxmemory", 1)
    try:
        with FileStreamProgramCache(tmp_path) as cache:
            cache["k"] = b"newer"
    finally:
        server.client.config_set("maxmemory", 0)
    _evict(tmp_path, b"k")
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache._backing is not None
        assert cache.get("k") is None
        assert (cache._backing.store.counts.lost_puts, cache._backing.store.counts.stale_entries) == (1, 1)
        cache["k"] = b"newest"
    _evict(tmp_path, b"k")
    assert _read_elsewhere(tmp_path, "k") == "b'newest'", "it was stored there"


def test_what_is_removed_is_removed_from_the_server_before_the_call_returns(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"v"  # which waits to be sent
        del cache["k"]
        assert not server.client.exists(f"lockcache:{entry_name(b'k')}")
        assert _read_elsewhere(tmp_path, "k") == "None"
        with pytest.raises(KeyError):
            del cache["k"]


def test_what_cannot_be_removed_from_the_server_is_counted_and_this_process_does_not_read_it(
    server: Valkey, tmp_path: Path, proxy_to: Callable[..., FaultProxy]
) -> None:
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"v"
    silent = proxy_to(server.port, "silence")
    _forget()
    os.environ["LOCKCACHE_REMOTE"] = silent.url
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache._backing is not None
        del cache["k"]
        assert cache.get("k") is None
    assert cache._backing.store.counts.lost_removals == 1


def test_clear_leaves_the_server_alone(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"v"
        cache.clear()
        assert len(cache) == 0
        cache._backing.store.flush()  # type: ignore[union-attr]
        assert cache["k"] == b"v"


def test_what_is_removed_here_may_be_on_the_server_alone(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "one") as one:
        one["k"] = b"v"
    with FileStreamProgramCache(tmp_path / "other") as other:
        del other["k"]
        assert other.get("k") is None
    assert server.client.dbsize() == 0


def test_a_copy_never_replaces_what_was_stored_meanwhile(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileStreamProgramCache(tmp_path / "one") as one:
        one["k"] = b"of the server"
    cache = FileStreamProgramCache(tmp_path / "other")
    assert cache._backing is not None
    load = cache._backing.store.load

    def load_slowly(name: str) -> object:
        found = load(name)
        cache["k"] = b"of a writer"
        return found

    monkeypatch.setattr(cache._backing.store, "load", load_slowly)
    cache.get("k")
    assert cache["k"] == b"of a writer"
    assert cache.stats().entries == 1
    assert [repair for repair in cache.recount() if repair] == [], "the copy's reservation was given back"
    cache.close()


def test_the_processes_of_a_node_share_what_they_know_of_a_dead_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Valkey, proxy_to: Callable[..., FaultProxy]
) -> None:
    proxy = proxy_to(server.port, "silence")
    monkeypatch.setenv("LOCKCACHE_REMOTE", proxy.url)
    assert _read_elsewhere(tmp_path, "k") == "None"
    assert proxy.requests > 0
    asked = proxy.requests
    assert _read_elsewhere(tmp_path, "k") == "None"
    assert proxy.requests == asked, "the second process does not ask"
    # Half a minute later one of them does, and finds it well.
    [breaker] = tmp_path.glob("lockcache/remote/*/breaker")
    breaker.write_text(str(int(time.time()) - 1))
    proxy.fault = ""
    cache = FileStreamProgramCache(tmp_path)
    cache.get("k")
    cache.close()
    assert not breaker.exists()
    assert proxy.requests > asked


def test_a_variable_that_cannot_be_is_an_error_when_the_cache_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_REMOTE", "ftp://server")
    with pytest.raises(ValueError, match="LOCKCACHE_REMOTE: 'ftp://server' is not a URL"):
        FileStreamProgramCache(tmp_path)


def test_a_client_that_is_missing_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(url: object) -> None:
        raise ModuleNotFoundError("redis:// needs the package redis: pip install 'lockcache[redis]'")

    monkeypatch.setattr(backing, "require_client", missing)
    with FileStreamProgramCache(tmp_path) as cache:
        cache["k"] = b"v"
        assert cache["k"] == b"v"
    assert "pip install" in caplog.text


def test_a_turn_of_this_node_is_a_turn_of_all(server: Valkey, tmp_path: Path) -> None:
    one, other = (FileStreamProgramCache(tmp_path / name, compile_once=True) for name in ("one", "other"))
    lease = f"lockcache:lease:{entry_name(b'k')}"
    assert one.get("k") is None
    assert server.client.exists(lease)
    one["k"] = b"v"
    one.close()
    assert not server.client.exists(lease)
    assert other.get("k") == b"v"
    assert other.get("other") is None
    other.close()
    assert not server.client.exists(f"lockcache:lease:{entry_name(b'other')}"), "a turn that is given up"


def test_a_lookup_without_a_turn_asks_the_server_and_takes_no_turn_there(server: Valkey, tmp_path: Path) -> None:
    one, other = (FileStreamProgramCache(tmp_path / name, compile_once=True) for name in ("one", "other"))
    assert one.get("k", turn=False) is None
    assert not server.client.exists(f"lockcache:lease:{entry_name(b'k')}")
    one["k"] = b"v"
    one.close()
    assert other.get("k", turn=False) == b"v"
    assert (other.stats().hits, other.stats().misses) == (1, 0)
    other.close()


def test_nobody_listens_and_the_directory_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_REMOTE", f"redis://127.0.0.1:{free_port()}")
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache.get_or_compute("k", lambda: b"v") == b"v"
        assert cache["k"] == b"v"
        del cache["k"]
        cache.clear()


def test_lockcache_run_puts_a_server_behind_the_directory(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKCACHE_REMOTE")
    program = (
        "from lockcache import *; print(FileStreamProgramCache().get_or_compute('k', lambda: sys.argv[1].encode()))"
    )
    for host in ("one", "other"):
        words = ["run", "--remote", server.url, "--quiet", "--dir", str(tmp_path / host), "--"]
        ended = run(*words, sys.executable, "-c", f"import sys; {program}", f"compiled on host {host}")
        assert (ended.returncode, ended.stdout) == (0, "b'compiled on host one'\n")
    assert server.client.dbsize() == 1
    ended = run("run", "--remote", "ftp://secret@host", "--", "true")
    assert (ended.returncode, ended.stderr.count("\n"), "secret" in ended.stderr) == (2, 1, False)


def test_an_operator_clears_the_server_too(server: Valkey, tmp_path: Path) -> None:
    names = [f"k{number}" for number in range(300)]
    with FileStreamProgramCache(tmp_path) as cache, RemoteProgramCache(f"{server.url}?prefix=[other]*:") as other:
        for name in names:
            cache[name] = b"v"
        other["k"] = b"v"
    assert run("clear", "--yes", tmp_path).stdout == f"removed 300 entries from {tmp_path}\n"
    assert server.client.dbsize() == 301, "left alone"
    refused = run("clear", "--remote", tmp_path, stdin="n\n")
    assert (refused.returncode, server.client.dbsize()) == (1, 301)
    done = run("clear", "--yes", "--remote", "--json", tmp_path)
    assert json.loads(done.stdout)["removed_from_server"] == 300
    assert server.client.dbsize() == 1, "what has another prefix stays"
    os.environ["LOCKCACHE_REMOTE"] = f"{server.url}?prefix=[other]*:"
    assert run("clear", "--yes", "--remote", tmp_path).stdout.endswith(f"removed 1 entry from {server.url}\n")
    assert server.client.dbsize() == 0


def test_a_server_that_cannot_be_cleared_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileStreamProgramCache(tmp_path).close()
    monkeypatch.setenv("LOCKCACHE_REMOTE", f"http://127.0.0.1:{free_port()}")
    done = run("clear", "--yes", "--remote", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "HTTP has no request that lists" in done.stderr
    monkeypatch.delenv("LOCKCACHE_REMOTE")
    assert run("clear", "--yes", "--remote", tmp_path).returncode == 2


def test_a_copy_on_its_way_does_not_bring_back_what_this_process_removed(server: Valkey, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "one") as one:
        one["k"] = b"v"
    with FileStreamProgramCache(tmp_path / "other") as other:
        assert other._backed is not None
        assert other._backing is not None
        found = other._backing.store.load(entry_name(b"k"))
        assert found is not None
        del other["k"]
        other._backed._kept(entry_name(b"k"), found)
        assert other.get("k") is None
        assert len(other) == 0
        other["k"] = b"again"
        assert other["k"] == b"again"


def test_a_deletion_waits_no_longer_than_any_call_for_a_write_that_does_not_arrive(
    server: Valkey, tmp_path: Path, proxy_to: Callable[..., FaultProxy]
) -> None:
    os.environ["LOCKCACHE_REMOTE"] = proxy_to(server.port, "silence").url
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache._backing is not None
        cache["large"] = bytes(30_000_000)
        cache["k"] = b"v"
        for key in ("k", "large"):
            del cache[key]
        assert cache._backing.store.link.patience.spent_seconds < 1.5


def test_what_is_compiled_again_replaces_what_the_server_has(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileStreamProgramCache(tmp_path / "one") as one:
        one["k"] = b"older"
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    with FileStreamProgramCache(tmp_path / "one") as one:
        one["k"] = b"newer"
    monkeypatch.delenv("LOCKCACHE_RECACHE")
    assert _read_elsewhere(tmp_path / "other", "k") == "b'newer'"


def test_an_answer_from_before_a_write_that_is_confirmed_meanwhile_is_not_believed(server: Valkey) -> None:
    name, record = "a" * 64, Record(3, time.time_ns(), 0, b"")
    store = RemoteStore(parse_url(server.url))
    store.offer(name, b"old", record)
    store.flush()
    get = store.link._opened().get

    def get_and_have_the_write_confirmed(wanted: str) -> bytes | None:
        answer = get(wanted)
        store.unsent.confirm(name, store.unsent._writes[name])
        return answer

    store.link._opened().get = get_and_have_the_write_confirmed  # type: ignore[assignment, method-assign]
    store.unsent.begin(name)
    assert store.load(name) is None
    assert store.counts.stale_entries == 1
    store.close()
