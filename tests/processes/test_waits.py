# SPDX-License-Identifier: Apache-2.0
"""The page that all programs share, and callers that wait: counted meanwhile and afterwards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import Layout, read_counters
from tests.cli.command import run
from tests.threads import running
from tests.waiting import telling_of_waits

HANG_SECONDS = 60


def shared(path: Path) -> tuple[int, int, int, int]:
    """Returns the hits, misses, puts and waits that programs reported."""
    found = read_counters(Layout(str(path)))
    return found.hits, found.misses, found.puts, found.waits


def _get_and_store(cache: Any) -> bytes:
    found: bytes | None = cache.get("k")
    if found is None:
        cache["k"] = found = b"code"
    return found


def _get_or_compute(cache: Any) -> bytes:
    code: bytes = cache.get_or_compute("k", lambda: b"code")
    return code


@pytest.mark.parametrize("call, compile_once", [(_get_and_store, True), (_get_or_compute, False)])
def test_who_waits_is_reported_as_neither_hit_nor_miss_until_it_is_served(
    call: Callable[[Any], bytes], compile_once: bool, cache_path: Path
) -> None:
    holder = FileStreamProgramCache(cache_path, compile_once=compile_once)
    waiter = FileStreamProgramCache(cache_path, compile_once=compile_once)
    waiting = threading.Event()
    turn = holder.begin("k")
    holder.stats()
    with telling_of_waits(waiting.set), running(call, [(waiter,)]) as served:
        assert waiting.wait(HANG_SECONDS)
        while (counted := waiter.stats()).misses:
            os.sched_yield()  # it is between two pauses
        assert (counted.hits, counted.waits) == (0, 0)
        assert shared(cache_path) == (0, 1, 0, 0)
        turn.store(b"code")
    assert [each.result() for each in served] == [b"code"]
    holder.close()
    waiter.close()
    assert shared(cache_path) == (1, 1, 1, 1)
    assert "50.0% hits (1 of 2, 1 after waiting), 1 put" in run("stats", cache_path).stdout
