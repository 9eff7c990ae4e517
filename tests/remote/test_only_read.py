# SPDX-License-Identifier: Apache-2.0
"""Servers that are only read, and directories that are only read and have a server; how long entries are kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache
from lockcache.filestream.disk import entry_name
from lockcache.remote import RemoteStore, backing, clear_server, parse_url
from tests.remote.servers import Valkey, store_all

CacheAt = Callable[..., RemoteProgramCache]


def test_nothing_is_sent_to_a_server_that_is_only_read(
    server: Valkey, cache_at: CacheAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with cache_at(server.url) as writing:
        writing["there"] = b"code"
    server.client.config_resetstat()
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", f"{server.url}?read_only=1")
    with FileStreamProgramCache(tmp_path / "cache") as cache:
        assert cache.get_or_compute("there", lambda: b"compiled") == b"code"
        assert cache.get_or_compute("new", lambda: b"compiled") == b"compiled"
        cache["stored"] = b"mine"
        del cache["stored"]
    alone = cache_at(f"{server.url}?read_only=yes")
    alone["k"] = b"mine"
    assert alone.get("k") is None, "and no other host's value in place of it"
    assert alone.get_or_compute("other", lambda: b"compiled") == b"compiled"
    alone.close()
    sent = {name.removeprefix("cmdstat_") for name in server.client.info("commandstats")}
    assert "getrange" in sent
    assert not sent & {"set", "del", "expire", "eval", "pexpire"}, sent
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert server.client.dbsize() == 1
    assert alone.remote_stats().lost_puts == alone.remote_stats().lost_removals == 0


def test_a_server_that_is_only_read_is_not_cleared(server: Valkey) -> None:
    server.client.set(f"lockcache:{'a' * 64}", b"v")
    with pytest.raises(ValueError, match="read_only"):
        clear_server(parse_url(f"{server.url}?read_only=1"))
    assert server.client.dbsize() == 1


@pytest.mark.parametrize("is_asked_for", [True, False], ids=["asked for", "found out"])
def test_a_directory_that_is_only_read_has_a_server_too(
    is_asked_for: bool, server: Valkey, cache_at: CacheAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_asked_for and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    root = tmp_path / "cache"
    with FileStreamProgramCache(root) as filling:
        filling["here"] = b"of the directory"
    with cache_at(server.url) as writing:
        writing["there"] = b"of the server"
    before = _tree(root)
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    with FileStreamProgramCache(root, read_only=True if is_asked_for else "auto") as cache:
        assert [cache.get(key) for key in ("here", "there", "missing")] == [b"of the directory", b"of the server", None]
        assert cache.get_or_compute("there", lambda: b"compiled") == b"of the server"
        assert cache.get_or_compute("missing", lambda: b"compiled") == b"compiled"
        assert (cache.stats().hits, cache.stats().misses) == (3, 2)
    assert _tree(root) == before
    assert server.client.dbsize() == 1, "and the server is only read as well"


def _tree(root: Path) -> list[Any]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("kept_days", [0.5, 1, 2, 30])
def test_a_daily_read_renews_for_how_long_an_entry_is_kept_and_others_write_nothing(
    kept_days: float, server: Valkey, cache_at: CacheAt
) -> None:
    kept_seconds, day = int(kept_days * 86_400), 86_400
    store_all(cache := cache_at(f"{server.url}?ttl={kept_seconds}"), [("one", b"1"), ("two", b"2"), ("new", b"3")])
    names = [f"lockcache:{entry_name(key)}" for key in (b"one", b"two", b"new")]
    for name in names[:2]:
        server.client.expire(name, max(1000, kept_seconds - day))
    server.client.config_resetstat()
    for _ in range(3):
        assert cache.get("one") == b"1"
        assert set(cache.get_many(["one", "two", "new", "missing"])) == {b"one", b"two", b"new"}
        assert cache.get("missing") is None
    assert all(server.client.ttl(name) > kept_seconds - 1000 for name in names)
    assert server.client.info("commandstats")["cmdstat_expire"]["calls"] == 2, "once for each that was old"


def test_a_server_that_refuses_to_renew_an_entry_is_asked_for_that_once(server: Valkey, cache_at: CacheAt) -> None:
    with cache_at(server.url) as writing:
        writing["k"] = b"code"
    server.client.expire(f"lockcache:{entry_name(b'k')}", 1000)
    server.client.acl_setuser("reader", enabled=True, passwords=["+word"], keys=["*"], commands=["+getrange", "+ttl"])
    try:
        server.client.config_resetstat()
        reading = cache_at(f"redis://reader:word@127.0.0.1:{server.port}")
        assert [reading.get("k") for _ in range(3)] == 3 * [b"code"]
        assert server.client.info("commandstats")["cmdstat_expire"]["rejected_calls"] == 1
    finally:
        server.client.acl_deluser("reader")


def test_a_server_that_may_not_be_written_is_read_though_nothing_is_renewed(server: Valkey, cache_at: CacheAt) -> None:
    with cache_at(server.url) as writing:
        writing["k"] = b"code"
    server.client.acl_setuser("reader", enabled=True, passwords=["+word"], keys=["*"], commands=["+getrange"])
    try:
        reading = RemoteStore(parse_url(f"redis://reader:word@127.0.0.1:{server.port}"))
        assert reading.load(entry_name(b"k")) is not None
        assert reading.counts.errors == 0
        reading.close()
    finally:
        server.client.acl_deluser("reader")
