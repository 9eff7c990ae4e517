# SPDX-License-Identifier: Apache-2.0
"""Servers that are dead, silent, slow, cut off, or answer garbage: what a process waits for them in all, and counts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache
from lockcache.remote import backing
from lockcache.remote.wait_limits import _patience
from lockcache_stress.trouble import can_mount, mounted_tmpfs
from tests.matrix_sampling import all_but, diagonals
from tests.remote.cluster import Cluster
from tests.remote.servers import FAULTS, KINDS, FaultProxy, Nginx, Valkey, free_port, store_all

# What one process does: it looks for 40 programs, compiles what is missing, and says for how long it waited in vain.
# That is the project's own count: how long it took is this machine's, which has more to do than processors.
PROGRAM = """
import json, sys
from lockcache import RemoteProgramCache
from lockcache.remote.sending import flush_all
url, name, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
cache, wrong = RemoteProgramCache(url), 0
for number in range(keys):
    wanted = b"code %d" % number * 100
    wrong += cache.get_or_compute(f"{name} {number}", lambda: wanted) != wanted
    wrong += cache.get(f"stored {number}") not in (None, b"stored %d" % number * 100)
flush_all()
print(json.dumps({"waited": cache.waited_seconds, "wrong": wrong, **vars(cache.remote_stats())}))
"""
STORE = """
import sys
from lockcache import RemoteProgramCache
with RemoteProgramCache(sys.argv[1]) as cache:
    cache.update((f"stored {number}", b"stored %d" % number * 100) for number in range(40))
"""
# Each key gets another one's value, or bytes of nobody's.
LIE = """
import sys
from lockcache.filestream.disk import entry_name
from lockcache.remote import open_transport, parse_url
transport = open_transport(parse_url(sys.argv[1]), 2.0)
values = [transport.get(entry_name(b"stored %d" % number)) for number in range(40)]
for number, value in enumerate(values):
    lie = values[number - 1] if number % 2 else value.replace(b"stored", b"others")
    transport.put(entry_name(b"stored %d" % number), lie)
"""
#: What answers in time, and so fails no call.
_ANSWERS = ("slow", "lies", "none")


def _started(program: str, *words: str) -> str:
    """Returns the output of a program in a process of its own: obstore does not survive a fork."""
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, timeout=100
    ).stdout


def _run(url: str, name: str = "k", keys: int = 40) -> dict[str, float]:
    found: dict[str, float] = json.loads(_started(PROGRAM, url, name, str(keys)))
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """A server of a kind, with 40 honest entries in it; started when it is first asked for."""
    running: dict[str, Any] = {}

    def serve(kind: str) -> Any:
        if kind not in running:
            running[kind] = KINDS[kind](tmp_path_factory.mktemp(kind))
            _started(STORE, running[kind].url)
        return running[kind]

    yield serve
    for server in running.values():
        server.kill()


def _faulty_url(server: Any, fault: str, proxy_to: Callable[..., FaultProxy]) -> str:
    if fault == "dead":
        return str(server.url_at(free_port()))
    if fault == "lies":
        url = f"{server.url}{'&' if '?' in server.url else '?'}prefix=lies:"
        _started(STORE, url)
        _started(LIE, url)
        return url
    return str(server.url_at(proxy_to(server.port, fault).port))


@pytest.mark.slow
@pytest.mark.parametrize("kind, fault", diagonals(KINDS, ["none", "dead", "lies", *FAULTS], 3))
def test_a_server_at_fault_costs_a_second_and_no_wrong_byte(
    kind: str, fault: str, served: Callable[[str], Any], proxy_to: Callable[..., FaultProxy]
) -> None:
    found = _run(_faulty_url(served(kind), fault, proxy_to), fault)
    assert found["wrong"] == 0
    assert found["errors"] + found["lost_puts"] > 0 or fault in _ANSWERS, "and each fault shows"
    assert found["puts"] + found["lost_puts"] == 40, "each is counted"
    assert found["hits"] + found["misses"] == 80, "and each lookup"
    # A second, and what a thread of a busy machine is late. 80 lookups that each wait would be 24 s and more.
    assert found["waited"] < 1.5
    if fault == "lies":
        assert (found["corrupt_entries"], found["hits"]) == (40, 0)
    if fault == "dead":
        assert found["lost_puts"] == 40
        assert 1 <= found["errors"] <= 4, "after which nobody asks it"


@pytest.mark.slow
def test_a_server_that_is_full_refuses_what_is_new_and_costs_nothing(
    server: Valkey, cache_at: Callable[..., RemoteProgramCache]
) -> None:
    _started(STORE, server.url)
    server.client.config_set("maxmemory", 1)
    try:
        found = _run(server.url)
    finally:
        server.client.config_set("maxmemory", 0)
    assert (found["wrong"], found["puts"], found["lost_puts"], found["hits"]) == (0, 0, 40, 40)
    assert found["errors"] >= 40
    assert found["waited"] < 1.5


@pytest.mark.root
@pytest.mark.slow
def test_an_http_server_whose_disk_is_full(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("needs root, to mount a small disk")
    (tmp_path / "files").mkdir()
    with mounted_tmpfs(str(tmp_path / "files"), "64k") as is_mounted:
        if not is_mounted:
            pytest.skip("nothing may be mounted here")
        nginx = Nginx(tmp_path)
        try:
            (tmp_path / "files" / "filler").write_bytes(bytes(60_000))
            found = _run(nginx.url)
        finally:
            nginx.kill()
    assert found["wrong"] == 0
    assert found["lost_puts"] > 0
    assert found["puts"] + found["lost_puts"] == 40
    assert found["waited"] < 1.5


WORK = """
import json, sys, time
from lockcache import RemoteProgramCache
server, wrong, number = RemoteProgramCache(sys.argv[1]), 0, 0
until = time.monotonic() + float(sys.argv[2])
with server as cache:
    while time.monotonic() < until:
        number += 1
        wanted = b"code %d" % number
        wrong += cache.get_or_compute(f"work {number}", lambda: wanted) != wanted
        wrong += cache.get(f"work {number // 2}") not in (None, b"code %d" % (number // 2))
counts = vars(server.remote_stats())
print(json.dumps({"waited": server.waited_seconds, "wrong": wrong, "wanted": number, **counts}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", all_but(["valkey"], KINDS))
def test_a_server_that_is_killed_and_started_again_and_again(kind: str, tmp_path: Path) -> None:
    server: Any = KINDS[kind](tmp_path)
    try:
        worker = subprocess.Popen([sys.executable, "-c", WORK, server.url, "6"], stdout=subprocess.PIPE, text=True)
        while worker.poll() is None:
            time.sleep(0.5)  # that is how often it dies
            server.kill()
            server.start()
        assert worker.stdout is not None
        with worker.stdout:
            found = json.load(worker.stdout)
    finally:
        server.kill()
    assert worker.returncode == 0
    assert (found["wrong"], found["corrupt_entries"]) == (0, 0)
    assert found["puts"] + found["lost_puts"] == found["wanted"], "each program was missing once, and stored"
    assert found["waited"] < 1.5


@pytest.mark.slow
def test_what_hangs_while_it_is_closed_is_dropped(
    server: Valkey, proxy_to: Callable[..., FaultProxy], cache_at: Callable[..., RemoteProgramCache]
) -> None:
    proxy = proxy_to(server.port)
    cache = cache_at(proxy.url)
    cache["k"] = b"v"
    cache.flush()
    proxy.fault = "silence"
    cache["lost"] = b"v"
    cache.close()
    assert (cache.stats().puts, cache.stats().dropped_writes) == (1, 1)
    assert cache.is_resting or cache.remote_stats().errors <= 1


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_cluster_of_six_that_loses_a_node(tmp_path: Path, cache_at: Callable[..., RemoteProgramCache]) -> None:
    cluster = Cluster(tmp_path, masters=3, replicas=3)
    try:
        cache = cache_at(cluster.nodes[1].url)
        store_all(cache, ((f"k{number}", b"code %d" % number) for number in range(100)))
        assert cache.stats().puts == 100
        cluster.nodes[0].kill()
        for number in range(100):
            wanted = b"code %d" % number
            assert cache.get_or_compute(f"k{number}", lambda wanted=wanted: wanted) == wanted
        cache.close()
        counts = cache.remote_stats()
        assert counts.errors > 0
        assert counts.hits + counts.misses == 100
        cluster.await_takeover(0)
        _patience.clear()
        later = cache_at(cluster.nodes[1].url)
        found = [later.get(f"k{number}") for number in range(100)]
        # Nodes copy what they took a moment later: the lost one's last entries may be lost with it.
        assert all(code in (None, b"code %d" % number) for number, code in enumerate(found))
        assert later.stats().hits > 60, later.remote_stats()
    finally:
        cluster.kill()


class _OnceFaultyProxy(FaultProxy):
    """A proxy whose fault spoils one answer."""

    def _answer(self, chunk: bytes, target: socket.socket) -> bool:
        is_spoiled = bool(self.fault)  # and not one that is set while this answer is on its way
        stays = super()._answer(chunk, target)
        if is_spoiled:
            self.fault = ""
        return stays


@pytest.mark.parametrize("is_behind", [False, True], ids=["alone", "behind a directory"])
def test_a_lookup_whose_call_failed_and_that_finds_the_entry_at_its_turn_is_one_hit(
    is_behind: bool, server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RemoteProgramCache(server.url) as stored:
        stored["k"] = b"code"
    with contextlib.closing(_OnceFaultyProxy(server.port)) as proxy:
        monkeypatch.setattr(backing, "_backings", {})
        monkeypatch.setenv("LOCKCACHE_REMOTE", proxy.url)
        with FileStreamProgramCache(tmp_path / "cache") if is_behind else RemoteProgramCache(proxy.url) as cache:
            assert cache.get("missing, to connect") is None
            proxy.fault = "half"
            assert cache.get_or_compute("k", lambda: b"computed") == b"code"
            assert (cache.stats().hits, cache.stats().misses) == (1, 1)
            if isinstance(cache, RemoteProgramCache):
                assert cache.remote_stats().errors == 1


@pytest.mark.parametrize("end", ["cache.close()", ""], ids=["closed", "left open"])
@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1:{port}/", "redis://:secret@127.0.0.1:{port}"])
def test_a_short_program_whose_server_is_not_there_says_so_in_one_line(url: str, end: str, tmp_path: Path) -> None:
    """Its one failed call opens no breaker."""
    program = f"from lockcache import FileStreamProgramCache as C\ncache = C({str(tmp_path / 'cache')!r})\n"
    program += f"cache['key'] = b'code'\n{end}"
    port = free_port()
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env={**os.environ, "LOCKCACHE_REMOTE": url.format(port=port)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    shown = url.format(port=port).replace(url[url.index("//") + 2 : url.index("@") + 1], "")
    assert ended.stderr == f"lockcache: {shown}: Connection refused; this program went on without it\n"
