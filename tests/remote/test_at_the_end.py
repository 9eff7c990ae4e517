# SPDX-License-Identifier: Apache-2.0
"""The end of a process with a server: what is stored late arrives, and what does not is counted, in each Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.filestream.disk import Layout
from lockcache.remote import read_servers
from tests.remote.servers import FaultProxy, Valkey, free_port

_BEGIN = """
import atexit, json, os, sys, threading
from lockcache import FileStreamProgramCache, RemoteProgramCache
cache = FileStreamProgramCache(sys.argv[1])
def store(first):
    for number in range(first, first + 40):
        cache[b"k%d" % number] = bytes(2000)
"""
#: Programs that store 40 entries without a close, each at another moment.
_PROGRAMS = {
    "at the end of main": "store(0)",
    "in an exit handler": "atexit.register(store, 0)",
    "in an exit handler, after main": "atexit.register(store, 100); store(0)",
    "in a thread that outlives main": """
store(100)
returned = threading.main_thread()
threading.Thread(target=lambda: (returned.join(), store(0))).start()
""",
    "in a thread that outlives main, and nothing before": """
returned = threading.main_thread()
threading.Thread(target=lambda: (returned.join(), store(0))).start()
""",
    "in a child": """
store(100)
child = os.fork()
if not child:
    store(0)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
""",
}
#: On Python 3.12, which refuses threads by then, these are lost, and counted.
_TOO_LATE = ("in an exit handler", "in a thread that outlives main, and nothing before")


def _pythons() -> list[str]:
    """Returns the interpreters to try: this one, and those that ``$LOCKCACHE_PYTHONS`` names, which have lockcache."""
    return [sys.executable, *filter(None, os.environ.get("LOCKCACHE_PYTHONS", "").split(os.pathsep))]


@pytest.mark.slow
@pytest.mark.parametrize("python", _pythons())
@pytest.mark.parametrize("when", _PROGRAMS)
def test_what_is_stored_late_arrives_or_is_counted(when: str, python: str, server: Valkey, tmp_path: Path) -> None:
    environment = {**os.environ, "LOCKCACHE_REMOTE": server.url}
    program = _BEGIN + _PROGRAMS[when]
    command = [python, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    stored = 80 if "100)" in program else 40
    [seen] = read_servers(Layout(str(tmp_path)))
    assert seen.counters.puts == server.client.dbsize()
    assert seen.counters.puts + seen.counters.lost_puts == stored, "each is counted"
    refuses_threads = "version 3.12" in subprocess.check_output(
        [python, "-c", "import sys; print('version %d.%d' % sys.version_info[:2])"], text=True
    )
    if when not in _TOO_LATE or not refuses_threads:
        assert seen.counters.lost_puts == 0, ended.stderr


def test_a_process_whose_hits_are_all_local_imports_no_client_and_connects_to_nobody(
    server: Valkey, tmp_path: Path
) -> None:
    environment = {**os.environ, "LOCKCACHE_REMOTE": server.url}
    subprocess.run([sys.executable, "-c", f"{_BEGIN}store(0)", str(tmp_path)], env=environment, check=True)
    server.client.config_resetstat()
    program = f"""{_BEGIN}
assert all(cache.get_or_compute(b"k%d" % number, bytes) == bytes(2000) for number in range(40))
print(sorted({{"redis", "urllib3", "obstore"}} & set(sys.modules)), threading.active_count())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, check=True, capture_output=True, text=True
    )
    assert ended.stdout == "[] 1\n"
    assert "cmdstat_getrange" not in server.client.info("commandstats")


@pytest.mark.parametrize("fault", ["refused", "silence"])
def test_a_fork_after_opening_and_64_openings_with_a_dead_server_wait_for_a_second_in_all(
    fault: str, server: Valkey, proxy_to: Callable[..., FaultProxy], tmp_path: Path
) -> None:
    program = """
import json, os, sys
from lockcache import FileStreamProgramCache
from lockcache.remote.wait_limits import patience_with
url = os.environ["LOCKCACHE_REMOTE"]
caches = []
for number in range(64):
    caches.append(FileStreamProgramCache(f"{sys.argv[1]}/{number % 8}"))
    caches[-1].get(b"k")
    caches[-1][b"k"] = b"code"
child = os.fork()
caches[0].get(b"missing")
caches[0][b"new"] = b"code"
if child:
    assert os.waitpid(child, 0)[1] == 0
for cache in caches:
    cache.close()
print(json.dumps(patience_with(url).spent_seconds), flush=True)
"""
    url = f"redis://127.0.0.1:{free_port()}" if fault == "refused" else proxy_to(server.port, fault).url
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "LOCKCACHE_REMOTE": url},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    waited = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(waited) == 2
    assert max(waited) < 1.5, "a second, and what a thread of a busy machine is late"
