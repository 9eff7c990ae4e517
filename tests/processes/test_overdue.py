# SPDX-License-Identifier: Apache-2.0
"""Holders that take longer than they are waited for: who computes then, and what becomes of what they come with."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.compile_once import turns
from lockcache.filestream.compile_once.lease import Holder
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.disk.owners import myself
from tests.processes.crowd import HANG_SECONDS


def leases(path: Path) -> list[str]:
    return os.listdir(path / "lockcache" / "leases")


def test_a_holder_that_is_overdue_is_not_waited_for_and_what_was_published_first_stays(cache_path: Path) -> None:
    slow = FileStreamProgramCache(cache_path)
    began, go_on = threading.Event(), threading.Event()
    late: list[bytes] = []

    def compute_slowly() -> bytes:
        began.set()
        assert go_on.wait(HANG_SECONDS)
        return b"late"

    thread = threading.Thread(target=lambda: late.append(slow.get_or_compute("k", compute_slowly)))
    thread.start()
    assert began.wait(HANG_SECONDS)
    impatient = FileStreamProgramCache(cache_path, lease_timeout_seconds=0.05)
    assert impatient.get_or_compute("k", lambda: b"first") == b"first"
    go_on.set()
    thread.join(HANG_SECONDS)
    assert late == [b"first"]
    assert (slow.stats().hits, slow.stats().misses, slow.stats().puts) == (0, 1, 0)
    assert (impatient.stats().hits, impatient.stats().misses, impatient.stats().waits) == (0, 1, 0)
    assert impatient["k"] == b"first"
    assert leases(cache_path) == []


def test_when_an_overdue_holder_fails_the_next_caller_waits_for_whoever_took_over(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_fail, took_over, may_end, waits = (threading.Event() for _ in range(5))
    failures: list[str] = []
    results: list[bytes] = []

    def fail_slowly() -> bytes:
        began.set()
        assert may_fail.wait(HANG_SECONDS)
        raise RuntimeError("no such header")

    def compute() -> bytes:
        took_over.set()
        assert may_end.wait(HANG_SECONDS)
        return b"of the second"

    def first() -> None:
        try:
            FileStreamProgramCache(cache_path).get_or_compute("k", fail_slowly)
        except RuntimeError as error:
            failures.append(str(error))

    def want(compute: Callable[[], bytes], **options: float) -> None:
        results.append(FileStreamProgramCache(cache_path, **options).get_or_compute("k", compute))

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert began.wait(HANG_SECONDS)
    threads.append(threading.Thread(target=want, args=(compute,), kwargs={"lease_timeout_seconds": 0.05}))
    threads[1].start()
    assert took_over.wait(HANG_SECONDS)
    may_fail.set()
    threads[0].join(HANG_SECONDS)
    assert failures == ["no such header"]
    monkeypatch.setattr(turns._Wait, "pause", lambda wait, until: (waits.set(), may_end.wait(HANG_SECONDS)))
    threads.append(threading.Thread(target=want, args=(lambda: waits.set() or b"of a third",)))
    threads[2].start()
    assert waits.wait(HANG_SECONDS)
    may_end.set()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert results == [b"of the second"] * 2
    assert leases(cache_path) == []


@pytest.mark.parametrize("left", ["by a killed one", "by a dropped write"])
def test_a_takeover_that_ended_without_a_word_holds_up_nobody(left: str, cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    layout = cache._directory.layout
    os.makedirs(layout.leases, mode=0o700)
    failed_ns = time.time_ns() if left == "by a dropped write" else 0
    dead = Holder("host", myself().host, 1, "", time.monotonic_ns(), failed_ns)
    Path(layout.lease(entry_name(b"k"), 1)).write_text(json.dumps(dead._asdict()))
    assert cache.get_or_compute("k", lambda: b"code") == b"code"
    assert cache.get_or_compute("other", lambda: b"code") == b"code"
