# SPDX-License-Identifier: Apache-2.0
"""Budgets by namespace: a real daemon takes what one framework stored too much, and nothing of the others."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, Turn
from tests.cli.command import run
from tests.daemon import warp_format
from tests.daemon.daemon_process import RunningDaemon, run_daemon, until
from tests.daemon.directories import photograph
from tests.daemon.http_client import Watched


def store(root: Path, namespace: str, entries: int, first: int = 0) -> None:
    with FileStreamProgramCache(root) as cache:
        for number in range(first, first + entries):
            found = cache.begin(f"{namespace}/{number}", namespace=namespace)
            assert isinstance(found, Turn)
            found.store(bytes(10_000))


def numbers_of(root: Path, namespace: str) -> list[int]:
    """Returns the entries that are still there, of the first two hundred."""
    with FileStreamProgramCache(root) as cache:
        return [number for number in range(200) if cache.get_entry(f"{namespace}/{number}")]


@pytest.fixture
def filled(cache_path: Path) -> Path:
    for namespace in ("triton", "jax"):
        store(cache_path, namespace, 100)
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("who", Entry(bytes(10_000), {"arch": "sm_90"}))
    return cache_path


def test_only_the_namespace_that_holds_too_much_is_swept_and_everything_shows_it(filled: Path, tmp_path: Path) -> None:
    config = tmp_path / "lockcache.toml"
    config.write_text(f'[[directory]]\npath = "{filled}"\nmax_size = "1G"\nnamespaces = {{ triton = "500k" }}\n')
    with Watched("--config", config) as daemon:
        swept = daemon.wait_for("sweep")
        assert swept["budget"] == "namespace triton"
        root = str(filled)
        of_triton = {"directory": root, "namespace": "triton"}
        until(lambda: 400_000 < (daemon.metric("lockcache_namespace_bytes", **of_triton) or 0) <= 500_000)
        until(lambda: daemon.metric("lockcache_namespace_max_bytes", **of_triton) == 500_000)
        until(lambda: daemon.metric("lockcache_namespace_entries", directory=root, namespace="jax") == 100)
        until(lambda: daemon.directory(filled)["namespaces"]["unknown"]["entries"] == 1)
        until(lambda: daemon.directory(filled)["architectures"].get("sm_90", {}).get("entries") == 1)
        assert "of triton at most 500.0 kB" in daemon.text("/")
        assert re.search(r'triton</td><td class="number">\d\d</td>', daemon.text("/"))
        assert numbers_of(filled, "triton") == list(range(200 - 100 - len(numbers_of(filled, "triton")), 100))
        assert len(numbers_of(filled, "jax")) == 100
        until(lambda: '"triton"' in run("top", "--json", "--once", filled).stdout)
        # Read again, another one bites.
        config.write_text(f'[[directory]]\npath = "{filled}"\nmax_size = "1G"\n[directory.namespaces]\njax = "200kB"\n')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.wait_for("sweep")["budget"] == "namespace jax")
        assert len(numbers_of(filled, "jax")) <= 20
        # What writers store from now on is counted too, and the directory's own cap holds whatever the namespaces say.
        store(filled, "jax", 100, first=200)
        until(lambda: (daemon.metric("lockcache_namespace_bytes", directory=root, namespace="jax") or 10**9) <= 200_000)


def test_the_hard_cap_wins_over_what_a_namespace_may_hold(filled: Path) -> None:
    with RunningDaemon("--max-size", "300k", "--namespaces", "triton=900k", filled) as daemon:
        daemon.wait_for("sweep")
        with FileStreamProgramCache(filled) as cache:
            assert cache.stats().bytes <= 300_000


def test_one_pass_and_a_dry_run_choose_the_same(filled: Path) -> None:
    before = photograph(filled)
    options = ("--namespaces", "triton=500k,jax=1G,unknown=1G", "--max-size", "1G")
    dry = run_daemon("--dry-run", "--json", *options, filled)
    assert photograph(filled) == before
    assert '"namespace triton"' in dry.stdout
    would = int(re.findall(r'"evicted_entries": ?(\d+)', dry.stdout)[0])
    once = run_daemon("--once", "--json", *options, filled)
    assert once.returncode == 0
    assert len(numbers_of(filled, "triton")) == 100 - would
    assert len(numbers_of(filled, "jax")) == 100


def test_the_commands_show_and_filter_by_it(filled: Path) -> None:
    assert run("ls", "--json", "--namespace", "jax", filled).stdout.count('"namespace": "jax"') == 100
    assert "jax 1.0 MB (100)" in run("stats", filled).stdout
    assert run("evict", "--namespace", "triton", "--yes", filled).returncode == 0
    assert numbers_of(filled, "triton") == []
    assert "no namespace 'triton' here; there are: jax, unknown" in run("ls", "--namespace", "triton", filled).stderr


def test_a_namespace_that_cannot_be_shown_is_unknown(cache_path: Path) -> None:
    """A member of a group may write any record; the page has to be served all the same."""
    with FileStreamProgramCache(cache_path) as cache:
        for number, name in enumerate(("\ud800", "\udc80", "a\nb", "x" * 81)):
            cache.put_entry(f"{number}", Entry(b"code", {"namespace": name}))
    with Watched("--max-size", "1G", cache_path) as daemon:
        until(lambda: daemon.directory(cache_path)["namespaces"].get("unknown", {}).get("entries") == 4)
        assert daemon.metric("lockcache_namespace_entries", directory=str(cache_path), namespace="unknown") == 4
    with FileStreamProgramCache(cache_path) as cache, pytest.raises(ValueError, match="printable"):
        cache.begin("k", namespace="a\nb")


def test_what_there_is_no_room_to_show_is_in_no_namespace_s_budget(cache_path: Path) -> None:
    for number in range(60):
        store(cache_path, f"n{number}", 2)
    store(cache_path, "other", 1)
    assert run_daemon("--once", "--namespaces", "other=100kB", cache_path).returncode == 0
    assert numbers_of(cache_path, "other") == [0]


def test_where_files_state_no_namespace_a_budget_of_one_is_said_to_have_no_effect(cache_path: Path) -> None:
    warp_format.compile_module(cache_path, 0)
    words = ("--once", "--max-size", "1G", "--namespaces", "triton=1M")
    for more in ((), ("--dry-run",)):
        said = run_daemon(*words, *more, cache_path)
        assert said.returncode == 0
        assert (
            "layout warp, whose files state no namespace: --namespaces has no effect there" in said.stdout + said.stderr
        )
