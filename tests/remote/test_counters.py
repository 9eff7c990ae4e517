# SPDX-License-Identifier: Apache-2.0
"""Counters of the server behind a directory: of all its programs together, and shown to operators."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Layout
from lockcache.lowlevel import read_counters
from lockcache.remote import read_servers
from tests.cli.command import run
from tests.daemon.daemon_process import until
from tests.daemon.http_client import Watched
from tests.daemon.test_metrics import lint
from tests.remote.servers import FaultProxy, Valkey, free_port
from tests.threads import running
from tests.waiting import telling_of_waits

pytestmark = pytest.mark.usefixtures("behind_directories")


def _seen(path: Path) -> dict[str, int]:
    [seen] = read_servers(Layout(str(path)))
    return seen.counters._asdict()


def _shown(path: Path) -> dict[str, Any]:
    ended = run("stats", "--json", path)
    assert (ended.returncode, ended.stderr) == (0, "")
    [found] = json.loads(ended.stdout)["remote"]
    return dict(found)


STORE = "import sys; from lockcache import *; FileStreamProgramCache(sys.argv[1])['k'] = b'v' * 1000"


def _fill(path: Path) -> None:
    """A program of its own, which never closes its cache."""
    subprocess.run([sys.executable, "-c", STORE, str(path)], check=True)


def test_a_program_that_just_ends_has_reported_what_it_sent_and_read(server: Valkey, tmp_path: Path) -> None:
    _fill(tmp_path / "one")
    sent = _seen(tmp_path / "one")
    assert (sent["puts"], sent["hits"], sent["lost_puts"], sent["errors"]) == (1, 0, 0, 0)
    assert sent["bytes_written"] > 1000
    with FileStreamProgramCache(tmp_path / "other") as other:
        assert other.get("k") == b"v" * 1000
        assert other.get("missing") is None
    read = _seen(tmp_path / "other")
    assert (read["hits"], read["misses"], read["puts"], read["answers"]) == (1, 1, 0, 2)
    assert read["bytes_read"] == sent["bytes_written"]
    assert read["answers_ns"] > 0
    assert read["reports"] == 1
    assert read_counters(Layout(str(tmp_path / "other"))).hits == 1, "the directory's own page goes on"


def test_puts_that_are_lost_at_the_end_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_REMOTE", f"redis://127.0.0.1:{free_port()}")
    _fill(tmp_path)
    seen = _seen(tmp_path)
    assert (seen["puts"], seen["lost_puts"]) == (0, 1)
    assert seen["errors"] > 0


def test_a_full_server_and_one_that_lies_are_counted(
    server: Valkey, tmp_path: Path, proxy_to: Callable[..., FaultProxy]
) -> None:
    server.client.config_set("maxmemory", 1)
    try:
        _fill(tmp_path / "one")
    finally:
        server.client.config_set("maxmemory", 0)
    assert _seen(tmp_path / "one")["lost_puts"] == 1
    _fill(tmp_path / "other")
    for key in server.client.keys("lockcache:*"):
        server.client.set(key, b"garbage")
    with FileStreamProgramCache(tmp_path / "third") as third:
        assert third.get("k") is None
    assert _seen(tmp_path / "third")["corrupt_entries"] == 1


def test_a_program_that_runs_on_reports_when_it_asks_for_its_statistics(server: Valkey, tmp_path: Path) -> None:
    cache = FileStreamProgramCache(tmp_path)
    cache.get("missing")
    assert _seen(tmp_path)["misses"] == 0
    cache.stats()
    assert _seen(tmp_path)["misses"] == 1
    cache.close()


def test_stats_shows_the_server_and_whether_it_is_asked(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_to: Callable[..., FaultProxy]
) -> None:
    server.client.acl_setuser("team", enabled=True, passwords="+secret", commands=["+@all"], keys=["*"])
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url.replace("//", "//team:secret@") + "?prefix=team:")
    _fill(tmp_path)
    with FileStreamProgramCache(tmp_path) as cache:
        cache.get("missing")
    found = _shown(tmp_path)
    shown = run("stats", tmp_path).stdout
    assert found["server"] == f"{server.url}?prefix=team:"
    assert (found["puts"], found["misses"], found["hit_ratio"], found["is_resting"]) == (1, 1, 0.0, False)
    assert re.search(rf"^remote +{server.url}\?prefix=team:: 0.0% hits \(0 of 1\), 1 put; 0 B read", shown, re.M)
    assert "secret" not in shown + json.dumps(found)
    silent = proxy_to(server.port, "silence")
    monkeypatch.setenv("LOCKCACHE_REMOTE", silent.url)
    _fill(tmp_path)
    with FileStreamProgramCache(tmp_path) as cache:
        cache.get("missing")
    shown = run("stats", tmp_path).stdout
    assert re.search(rf"^remote( 2)? +{silent.url}: .*1 put lost.*; not asked now: it did not answer$", shown, re.M)
    assert shown.count("not asked now") == 1


def test_the_daemon_shows_it_in_metrics_and_on_its_page(server: Valkey, tmp_path: Path) -> None:
    _fill(tmp_path)
    labels = {"directory": str(tmp_path), "server": server.url}
    with Watched("--max-size", "1M", tmp_path) as daemon:
        until(lambda: daemon.metric("lockcache_remote_puts_total", **labels) == 1.0)
        assert daemon.metric("lockcache_remote_up", **labels) == 1.0
        assert (daemon.metric("lockcache_remote_written_bytes_total", **labels) or 0) > 1000
        lint(daemon.text("/metrics").encode())
        assert f"{server.url}: 0 hits, 0 misses, 1 put" in daemon.text("/")
        [found] = daemon.directory(tmp_path)["servers"]
        assert (found["server"], found["puts"], found["is_resting"]) == (server.url, 1, False)
        [folder] = tmp_path.glob("lockcache/remote/*")
        (folder / "breaker").write_text(str(int(time.time()) + 20))
        until(lambda: daemon.metric("lockcache_remote_up", **labels) == 0.0)
        until(lambda: "not asked now" in daemon.text("/"))  # which was made above, and each answer is kept for a second


def test_after_a_reset_the_servers_counts_begin_again_and_the_totals_stay(server: Valkey, tmp_path: Path) -> None:
    _fill(tmp_path)
    assert "1 put;" in run("stats", "--reset", tmp_path).stdout
    with FileStreamProgramCache(tmp_path) as cache:
        cache.get("missing")
    found = _shown(tmp_path)
    assert (found["puts"], found["misses"]) == (1, 1)
    assert (found["since_reset"]["puts"], found["since_reset"]["misses"]) == (0, 1)
    assert "0.0% hits (0 of 1), 0 puts;" in run("stats", tmp_path).stdout


def test_what_others_put_in_the_place_of_a_page_costs_nothing(server: Valkey, tmp_path: Path) -> None:
    _fill(tmp_path)
    [folder] = tmp_path.glob("lockcache/remote/*")
    secret = tmp_path / "secret"
    secret.write_bytes(b"redis://not-this-one")
    (folder / "name").unlink()
    (folder / "name").symlink_to(secret)
    (folder / "counters").write_bytes(os.urandom(4096))
    (folder.parent / "linked").symlink_to(folder)
    (folder.parent / "a file").write_bytes(b"x")
    os.mkfifo(folder.parent / "fifo")
    (folder.parent / "long").mkdir()
    (folder.parent / "long" / "name").write_bytes(b"\x1b[31m" * 10_000)
    servers = read_servers(Layout(str(tmp_path)))
    assert {seen.counters.puts for seen in servers} == {0}
    assert all(seen.server.isprintable() and len(seen.server) < 600 for seen in servers)
    assert "not-this-one" not in run("stats", tmp_path).stdout
    assert "\x1b" not in run("stats", tmp_path).stdout
    with FileStreamProgramCache(tmp_path) as cache:
        cache.get("missing")
    _fill(tmp_path)
    assert secret.read_bytes() == b"redis://not-this-one"


def test_a_killed_program_loses_its_own_counts_alone(server: Valkey, tmp_path: Path) -> None:
    _fill(tmp_path)
    killed = STORE + "; import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    ended = subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    _fill(tmp_path)
    assert _seen(tmp_path)["puts"] == 2


def test_a_host_that_waits_for_another_one_and_is_served_is_a_hit(server: Valkey, tmp_path: Path) -> None:
    one, other = (FileStreamProgramCache(tmp_path / name) for name in ("one", "other"))
    waiting = threading.Event()
    turn = one.begin("k")
    with telling_of_waits(waiting.set), running(other.get_or_compute, [("k", lambda: b"again")]) as served:
        assert waiting.wait(60)
        turn.store(b"code")
    assert [each.result() for each in served] == [b"code"]
    for cache in (one, other):
        cache.close()
    counted = [read_counters(Layout(cache.path)) for cache in (one, other)]
    assert [(each.hits, each.misses, each.waits) for each in counted] == [(0, 1, 0), (1, 0, 1)]
    seen = [_seen(tmp_path / name) for name in ("one", "other")]
    assert [(each["hits"], each["misses"], each["waits"]) for each in seen] == [(0, 1, 0), (1, 0, 1)]
