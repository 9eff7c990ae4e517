# SPDX-License-Identifier: Apache-2.0
"""The daemon keeps a directory with views as it keeps any: under its cap, and accounted for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.cli.command import run
from tests.crash.measure import accounted, on_disk
from tests.daemon.daemon_process import run_daemon

FILES = {"kernel.so": b"\x7fELF" * 1000, "kernel.json": b"{}"}

_DRIFT = ("bytes", "entries", "shards", "busy_shards")


@pytest.mark.slow
def test_it_keeps_the_cap_over_views_and_nobody_takes_them_for_drift(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    for number in range(20):
        cache.put_files(f"{number}", FILES)
        assert cache.view_files(f"{number}")
    done = run_daemon("--once", "--json", "--max-size", "50k", cache_path)
    assert done.returncode == 0, done.stderr
    assert 0 < cache.stats().bytes <= 50_000
    assert accounted(cache_path) == on_disk(cache_path)
    entries = {path.name for path in (cache_path / "entries").glob("??/*")}
    assert {path.name[:62] for path in (cache_path / "lockcache/views").glob("??/*")} == entries
    assert cache.recount() == []
    assert json.loads(run("stats", cache_path, "--json").stdout)["drift"] == dict.fromkeys(_DRIFT, 0)
    assert run("verify", cache_path).returncode == 0
