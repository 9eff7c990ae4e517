# SPDX-License-Identifier: Apache-2.0
"""Times that are to come: of entries whose node had a wrong clock, or that an archive restored, in every layout."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.daemon.directory_kinds import KINDS
from tests.daemon.keepers import keep  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_blocks")]

YEAR_SECONDS = 365 * 86400


def date(root: Path, seconds: float) -> None:
    """Date all files, but those that are dated to come."""
    for path in root.rglob("*"):
        own = "lockcache" in path.relative_to(root).parts
        if path.is_file() and not own and path.stat().st_mtime < time.time():
            os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("name", KINDS)
def test_entries_that_are_dated_to_come_go_before_those_used_since(name, tmp_path, keep):  # noqa: F811
    kind, root = KINDS[name], tmp_path / "cache"
    half = 600_000 // kind.entry_bytes
    kind.fill(root, range(half))
    date(root, time.time() + YEAR_SECONDS)
    kind.fill(root, range(half, 2 * half))
    date(root, time.time())
    dated = {kind.name_of(number) for number in range(half)}
    kept = keep(root, kind.layout)
    kept.keeper.complete_pass(lambda: None)
    left = kind.names(root)
    assert len(left & dated) < half <= len(left - dated)


def test_what_clock_was_set_back_since_ages_like_the_others(tmp_path, monkeypatch):
    with FileStreamProgramCache(tmp_path / "cache", max_size_bytes=1_000_000) as cache:
        for number in range(60):
            cache[b"by a clock a day ahead %d" % number] = bytes(10_000)
        now, now_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: now() - 86400)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() - 86400 * 10**9)
        for number in range(300):
            cache[b"used %d" % number] = bytes(10_000)
        assert not any(cache.get(b"by a clock a day ahead %d" % number) for number in range(60))
