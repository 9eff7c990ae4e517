# SPDX-License-Identifier: Apache-2.0
"""``$LOCKCACHE_MANIFEST`` with ``$LOCKCACHE_REMOTE``: what the last job looked up is fetched by the next at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Layout, entry_name
from lockcache.remote import backing, read_servers
from lockcache.remote.manifest import add_to_manifest, read_manifest, recorder
from tests.cli.command import run
from tests.remote.servers import FaultProxy, Valkey, free_port

_FORK = multiprocessing.get_context("fork")
_KEYS = [f"kernel {number}" for number in range(60)]
_NAMES = frozenset(entry_name(key.encode()) for key in _KEYS)


@pytest.fixture(autouse=True)
def manifest(monkeypatch: pytest.MonkeyPatch, server: Valkey, tmp_path: Path) -> Iterator[str]:
    """A manifest, in a process that has opened nothing yet."""
    path, recorders = str(tmp_path / "job.manifest"), dict[str, recorder.Recorder]()
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setattr(recorder, "_recorders", recorders)
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    monkeypatch.setenv("LOCKCACHE_MANIFEST", path)
    yield path
    for each in recorders.values():
        each.keys.clear()


@pytest.fixture
def stored(manifest: str, tmp_path: Path) -> None:
    """The server has the programs, and the manifest lists them."""
    _store(tmp_path, manifest)


def _store(tmp_path: Path, manifest: str) -> None:
    with FileStreamProgramCache(tmp_path / "filling") as cache:
        cache.update((key, key.encode() * 100) for key in _KEYS)
    backing._backings.clear()
    add_to_manifest(manifest, _NAMES, 1.0)


def _fetched(cache: FileStreamProgramCache) -> FileStreamProgramCache:
    """A cache that was just opened, when its prefetch has ended."""
    assert cache._backing is not None
    [prefetch] = cache._backing._prefetches.values()
    if prefetch.thread is not None:
        prefetch.thread.join(60)
        assert not prefetch.thread.is_alive()
    return cache


def _seen(path: Path) -> dict[str, int]:
    [seen] = read_servers(Layout(str(path)))
    return seen.counters._asdict()


def _the_mark(path: Path) -> tuple[Path, str]:
    """Returns the file that says when a node prefetched last."""
    [mark] = path.glob("lockcache/remote/*/prefetched")
    return mark, mark.read_text()


def _evict(path: Path, *keys: str) -> None:
    """Evict entries, as far as a reader sees, more than a minute after the prefetch."""
    for key in keys:
        os.unlink(Layout(str(path)).entry(entry_name(key.encode())))
    mark, text = _the_mark(path)
    when, name = text.split()
    mark.write_text(f"{int(when) - 60} {name}")


def _all_right(cache: FileStreamProgramCache) -> bool:
    return all(cache.get(key) == key.encode() * 100 for key in _KEYS)


LOOK_UP = """
import json, sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
[prefetch] = cache._backing._prefetches.values()
if sys.argv[2] == "wait" and prefetch.thread is not None:
    prefetch.thread.join(60)
values = [cache.get(f"kernel {number}") for number in range(60)]
assert set(values) <= {None, *(f"kernel {number}".encode() * 100 for number in range(60))}
cache.close()
store = cache._backing.store
found = {"found": len(values) - values.count(None), "waited": store.link.patience.spent_seconds}
is_waited_for = prefetch.thread is not None and not prefetch.thread.daemon
print(json.dumps({**found, "is_waited_for": is_waited_for, **vars(store.counts)}))
"""


def _look_up(path: Path, how: str = "wait") -> dict[str, float]:
    command = [sys.executable, "-c", LOOK_UP, str(path), how]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True, timeout=100))
    return found


@pytest.mark.slow
def test_what_a_job_looked_up_is_fetched_on_the_next_node_in_a_few_round_trips(
    server: Valkey, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_to: Callable[..., FaultProxy]
) -> None:
    with FileStreamProgramCache(tmp_path / "filling") as cache:
        cache.update((key, key.encode() * 100) for key in _KEYS)
    assert _look_up(tmp_path / "filling")["prefetched"] == 0, "it has them"
    assert read_manifest(manifest) == _NAMES
    proxy = proxy_to(server.port)
    monkeypatch.setenv("LOCKCACHE_REMOTE", proxy.url)
    found = _look_up(tmp_path / "node")
    assert (found["found"], found["prefetched"], found["misses"]) == (60, 60, 0)
    # One for the connection; pieces of requests are what is counted, and some come in two.
    assert proxy.requests <= 10, "60 of them without a manifest"
    seen = _seen(tmp_path / "node")
    assert (seen["prefetched"], seen["hits"], seen["errors"]) == (60, 0, 0)
    assert seen["bytes_read"] > 60 * 100
    assert "60 prefetched" in run("stats", tmp_path / "node").stdout


def _open(path: str, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    _fetched(FileStreamProgramCache(path)).close()


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_of_processes_that_start_together_one_fetches(tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "warm")  # imported before the fork, and of another directory
    backing._backings.clear()
    barrier = _FORK.Barrier(8)
    workers = [_FORK.Process(target=_open, args=(str(tmp_path / "node"), barrier)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert _seen(tmp_path / "node")["prefetched"] == 60
    assert len(FileStreamProgramCache(tmp_path / "node")) == 60


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_it_is_done_again_after_a_minute_for_what_is_missing_by_then(tmp_path: Path) -> None:
    assert _look_up(tmp_path / "node")["prefetched"] == 60
    mark, text = _the_mark(tmp_path / "node")
    mark.write_text(f"{int(time.time())} {text.split()[1]}")
    with FileStreamProgramCache(tmp_path / "node") as cache:
        assert cache._backing is not None
        assert [each.thread for each in cache._backing._prefetches.values()] == [None]
    _evict(tmp_path / "node", *_KEYS[:7])
    assert _look_up(tmp_path / "node")["prefetched"] == 7


@pytest.mark.usefixtures("stored")
def test_lies_are_counted_and_the_rest_is_kept(server: Valkey, tmp_path: Path) -> None:
    lying = [f"lockcache:{name}" for name in sorted(_NAMES)[:4]]
    server.client.set(lying[0], b"garbage")
    server.client.set(lying[1], server.client.get(lying[2]) or b"")
    server.client.delete(lying[3])
    with _fetched(FileStreamProgramCache(tmp_path / "node")) as cache:
        assert len(cache) == 57
        assert cache._backing is not None
        counts = cache._backing.store.counts
        assert (counts.prefetched, counts.corrupt_entries, counts.misses) == (57, 2, 0)


@pytest.mark.usefixtures("stored")
def test_copies_take_half_of_the_cap_and_evict_what_was_not_used_for_longest(tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "node", max_size_bytes=30_000) as cache:
        _fetched(cache)
        stats = cache.stats()
        assert 10_000 < stats.bytes <= 15_000
        cache["own"] = b"v" * 14_000
    backing._backings.clear()
    _the_mark(tmp_path / "node")[0].unlink()
    with FileStreamProgramCache(tmp_path / "node") as cache:
        _fetched(cache)
        stats = cache.stats()
        assert stats.bytes <= 30_000
        assert stats.evictions > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["silence", "dead"])
def test_a_server_at_fault_costs_what_it_costs_without(
    fault: str, server: Valkey, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    proxy_to: Callable[..., FaultProxy],
) -> None:  # fmt: skip
    _store(tmp_path, manifest)
    url = f"redis://127.0.0.1:{free_port()}" if fault == "dead" else proxy_to(server.port, fault).url
    monkeypatch.setenv("LOCKCACHE_REMOTE", url)
    found = _look_up(tmp_path / "node", "go on")
    assert found["found"] == 0
    assert found["errors"] > 0
    assert found["waited"] < 1.5
    assert not found["is_waited_for"], "the interpreter's end joins every other thread"


KILLED = """
import os, signal, sys
from lockcache import FileStreamProgramCache
from lockcache.remote.backing import BackedWriter
store_copy, stored = BackedWriter.store_copy, 0
def killing(*arguments):
    global stored
    stored += 1
    if stored == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return store_copy(*arguments)
BackedWriter.store_copy = killing
cache = FileStreamProgramCache(sys.argv[1])
[prefetch] = cache._backing._prefetches.values()
prefetch.thread.join()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_who_comes_after_one_that_was_killed_at_it_fetches_the_rest(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "node")], check=False)
    assert ended.returncode == -9
    found = _look_up(tmp_path / "node")
    assert (found["prefetched"], found["found"]) == (41, 60)


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_process_that_ends_meanwhile_leaves_whole_entries_and_nothing_staged(tmp_path: Path) -> None:
    program = "import sys; from lockcache import FileStreamProgramCache; FileStreamProgramCache(sys.argv[1])"
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "node")], check=True, capture_output=True, timeout=60
        )
        assert ended.stderr == b""
        assert os.listdir(tmp_path / "node" / "tmp") == []
    assert run("verify", tmp_path / "node").returncode == 0
    assert _all_right(FileStreamProgramCache(tmp_path / "node"))


def test_a_manifest_that_is_not_there_yet_is_no_warning_and_one_that_is_damaged_is(
    manifest: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _fetched(FileStreamProgramCache(tmp_path / "node"))
    assert caplog.text == ""
    Path(manifest).write_text("# lockcache manifest 1\nnot a key\n")
    backing._backings.clear()
    _fetched(FileStreamProgramCache(tmp_path / "node"))
    assert f"nothing is fetched: {manifest}: line 2: 'not a key' is not a key" in caplog.text


def test_a_forked_child_neither_fetches_nor_waits_for_its_parents_fetching(
    server: Valkey, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_to: Callable[..., FaultProxy]
) -> None:
    _store(tmp_path, manifest)
    monkeypatch.setenv("LOCKCACHE_REMOTE", proxy_to(server.port, "silence").url)
    cache = FileStreamProgramCache(tmp_path / "node")
    assert cache._backing is not None
    [prefetch] = cache._backing._prefetches.values()
    child = _FORK.Process(target=prefetch.end)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.slow
def test_a_program_that_goes_on_with_the_next_key_finds_all_of_them_while_others_are_fetched(
    server: Valkey, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_to: Callable[..., FaultProxy]
) -> None:
    _store(tmp_path, manifest)
    monkeypatch.setenv("LOCKCACHE_REMOTE", proxy_to(server.port, delay_seconds=0.05).url)
    found = _look_up(tmp_path / "node", "go on")
    assert found["found"] == 60
    assert found["prefetched"] > 0
    assert found["misses"] == 0
