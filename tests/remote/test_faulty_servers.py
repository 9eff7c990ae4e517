"""Servers that are dead, silent, slow, cut off, or answer garbage: what a process waits for them in all, and counts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import RemoteProgramCache
from lockcache.filestream.remote.health import _patience
from tests.remote.cluster import Cluster
from tests.remote.servers import FAULTS, FaultProxy, Valkey, free_port

# What one process does: it looks for 40 programs, compiles what is missing, and says for how long it waited in all.
# Import and compilations are not the server's; its own clock is, from the first call to the end of the process.
PROGRAM = """
import atexit, json, sys, time
from lockcache import RemoteProgramCache
import lockcache.filestream.remote.redis_server  # the client library, as a program would have it that uses it
from lockcache.filestream.remote.sending import flush_all
url, keys = sys.argv[1], int(sys.argv[2])
cache = RemoteProgramCache(url)
wrong, began = 0, time.monotonic()
for number in range(keys):
    wanted = b"code %d" % number * 100
    wrong += cache.get_or_compute(f"k{number}", lambda: wanted) != wanted
    wrong += cache.get(f"stored {number}") not in (None, b"stored %d" % number * 100)
flush_all()
waited = time.monotonic() - began
counts = vars(cache.remote_stats())
print(json.dumps({"waited": waited, "wrong": wrong, "busy": time.process_time(), **counts}))
"""


def _run(url: str, keys: int = 40) -> dict[str, float]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(keys)], capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, float] = json.loads(ended.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_at_fault_costs_a_second_and_no_wrong_byte(
    fault: str, server: Valkey, proxy_to: Callable[..., FaultProxy]
) -> None:
    with RemoteProgramCache(server.url) as honest:
        honest.update((f"stored {number}", b"stored %d" % number * 100) for number in range(40))
    found = _run(proxy_to(server.port, fault).url)
    assert found["wrong"] == 0
    assert found["errors"] > 0 or fault == "slow"
    assert found["puts"] + found["lost_puts"] == 40
    # A second, and what other processes of this machine took from it. 80 lookups that each wait would be 24 s and more.
    assert found["waited"] < 10


@pytest.mark.slow
def test_a_server_that_is_dead_costs_next_to_nothing() -> None:
    found = _run(f"redis://127.0.0.1:{free_port()}")
    assert found["wrong"] == 0
    assert found["lost_puts"] == 40
    assert 1 <= found["errors"] <= 4, "after which nobody asks it"
    assert found["waited"] < 10


@pytest.mark.slow
def test_a_server_that_is_restarted_again_and_again(
    server: Valkey, cache_at: Callable[..., RemoteProgramCache]
) -> None:
    cache, until = cache_at(server.url), time.monotonic() + 5
    is_over = threading.Event()

    def restart() -> None:
        while not is_over.wait(0.5):
            server.kill()
            server.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    number = 0
    try:
        while time.monotonic() < until:
            number += 1
            wanted = b"code %d" % number
            assert cache.get_or_compute(f"k{number}", lambda wanted=wanted: wanted) == wanted
            assert cache.get(f"k{number // 2}") in (None, b"code %d" % (number // 2))
    finally:
        is_over.set()
        restarting.join()
    cache.close()
    counts = cache.remote_stats()
    assert counts.puts + counts.lost_puts == number
    assert counts.corrupt_entries == 0


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


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_cluster_of_six_that_loses_a_node(tmp_path: Path, cache_at: Callable[..., RemoteProgramCache]) -> None:
    cluster = Cluster(tmp_path, masters=3, replicas=3)
    try:
        cache = cache_at(cluster.nodes[1].url)
        cache.update((f"k{number}", b"code %d" % number) for number in range(100))
        cache.flush()
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
