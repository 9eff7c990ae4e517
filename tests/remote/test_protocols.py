# SPDX-License-Identifier: Apache-2.0
"""Duties of every kind of server: Valkey, a cluster of it, HTTP in the layout of build caches, S3. On real ones.

Each test runs in processes that are started, for obstore cannot be in a process that was forked from one that used it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache.remote import open_transport, parse_url
from tests.remote.cluster import Cluster
from tests.remote.compute_processes import holder_of_a_turn
from tests.remote.failed_leases import check_failures
from tests.remote.servers import KINDS as SERVERS

KINDS = [*SERVERS, "cluster"]


@contextlib.contextmanager
def _serve(kind: str, folder: Path) -> Iterator[Any]:
    server: Any = Cluster(folder) if kind == "cluster" else SERVERS[kind](folder)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module", params=KINDS)
def kind_and_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with _serve(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield request.param, server.url


@pytest.fixture
def kind(kind_and_url: tuple[str, str]) -> str:
    return kind_and_url[0]


@pytest.fixture
def url(kind_and_url: tuple[str, str], request: pytest.FixtureRequest) -> str:
    """The server, with a place of its own for each test."""
    url = kind_and_url[1]
    return f"{url}{'&' if '?' in url else '?'}prefix={request.node.originalname}:"


def _run(program: str, *words: str) -> Any:
    ended = subprocess.run(
        [sys.executable, "-c", f"import json, sys, time\nfrom lockcache import *\n{program}", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout or "null")


def test_what_is_stored_is_read_replaced_and_removed(url: str) -> None:
    _run(
        """
cache = RemoteProgramCache(sys.argv[1])
cache.put_entry("k", Entry(b"code", {"arch": "sm_90"}))
cache["large"], cache["replaced"], cache["removed"] = bytes(3_000_000), b"older", b"v"
cache.flush()
cache["replaced"] = b"newer"
del cache["removed"]
cache.close()
assert (cache.stats().puts, cache.stats().dropped_writes) == (5 - 0, 0), cache.stats()
""",
        url,
    )
    _run(
        """
cache = RemoteProgramCache(sys.argv[1])
assert cache.get_entry("k") == Entry(b"code", {"arch": "sm_90"})
assert cache["large"] == bytes(3_000_000)
assert cache["replaced"] == b"newer"
assert cache.get("removed") is None
assert cache.get("missing") is None
assert cache.remote_stats().errors == 0, cache.remote_stats()
assert len(cache.get_many(["k", "large", "missing"])) == 2
""",
        url,
    )


@pytest.mark.long
def test_a_killed_holder_is_taken_over(kind: str, url: str) -> None:
    if kind == "http":
        pytest.skip("HTTP has no leases")
    with holder_of_a_turn(f"RemoteProgramCache({url!r})") as holder:
        taking = subprocess.Popen(
            [sys.executable, "-c", f"import sys, time\nfrom lockcache import *\n{TAKE}", url],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert taking.stdout is not None
        taking.stdout.readline()
        time.sleep(1.5)  # for longer than a renewal
        assert taking.poll() is None, "it waits for a holder that lives"
        killed_at = time.time()
        holder.kill()
    taken_at = float(taking.communicate()[0])
    print(f"{kind}: taken over after {taken_at - killed_at:.2f} s")
    assert taken_at - killed_at < 10, "three seconds, and what other processes of this machine took"


TAKE = """
cache = RemoteProgramCache(sys.argv[1])
assert cache.get("k") is None
print("waiting", flush=True)
turn = cache.begin("k")
assert isinstance(turn, Turn)
print(time.time())
"""


def test_a_failure_is_told_to_those_who_wait_and_ends_as_a_lease_does(kind: str, url: str) -> None:
    if not parse_url(url).may_lease:
        pytest.skip("HTTP has no leases")
    check_failures(lambda: open_transport(parse_url(url), 5.0))


def test_a_child_of_a_process_that_used_it_goes_on(url: str) -> None:
    _run(
        """
import os
cache = RemoteProgramCache(sys.argv[1])
cache["k"] = b"v"
cache.flush()
assert cache["k"] == b"v"
pid = os.fork()
if not pid:
    began = time.monotonic()
    found = cache.get("k")
    cache["by child"] = b"w"
    cache.close()
    os._exit(0 if found in (b"v", None) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert cache["k"] == b"v"
""",
        url,
    )


CLEAR = """
from lockcache.remote import clear_server, parse_url
url = parse_url(sys.argv[1])
with RemoteProgramCache(sys.argv[1]) as cache, RemoteProgramCache(sys.argv[1] + "other:") as other:
    for number in range(40):
        cache[f"k{number}"] = b"v"
    other["k0"] = b"v"
removed = []
assert clear_server(url, removed.append) == removed[-1] == 40
assert clear_server(url) == 0
assert RemoteProgramCache(sys.argv[1]).get("k1") is None
assert RemoteProgramCache(sys.argv[1] + "other:")["k0"] == b"v"
within = sys.argv[1] + "team-"  # not a whole segment of a path
with RemoteProgramCache(within) as cache:
    cache["k"] = b"v"
assert clear_server(parse_url(within)) == 1
"""


def test_what_an_operator_clears_is_all_below_the_prefix(kind: str, url: str) -> None:
    if kind == "http":
        pytest.skip("HTTP has no request that lists; tests/remote/test_backed_directory.py")
    _run(CLEAR, url)
