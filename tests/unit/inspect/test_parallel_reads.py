# SPDX-License-Identifier: Apache-2.0
"""Read-ahead: one thread while nothing is waited for, several once reads wait, and always in order."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from lockcache.filestream.inspect import read_ahead


def wait() -> None:
    """Gives up the processor twenty times, as who waits for a disk does."""
    for _ in range(20):
        time.sleep(0.0001)


def test_what_is_in_memory_is_read_by_the_caller_alone() -> None:
    readers = {threading.get_ident() for _ in read_ahead(lambda item: item, range(100))}
    assert list(read_ahead(lambda item: item * 2, range(100))) == list(range(0, 200, 2))
    assert readers == {threading.get_ident()}


def test_once_reads_wait_several_are_under_way_and_the_order_stays() -> None:
    together = threading.Barrier(3, timeout=60)

    def read(item: int) -> tuple[int, bool]:
        if item == 0:
            wait()
        elif item < 4:
            together.wait()  # one thread alone would wait here in vain
        return item, threading.current_thread() is threading.main_thread()

    assert list(read_ahead(read, range(50))) == [(0, True), *((item, False) for item in range(1, 50))]


def test_what_a_read_raises_comes_at_its_place() -> None:
    def read(item: int) -> int:
        wait()
        if item == 5:
            raise OSError(item)
        return item

    found: list[int] = []
    with pytest.raises(OSError, match="5"):
        found.extend(read_ahead(read, range(9)))
    assert found == [0, 1, 2, 3, 4]


def test_of_a_reader_that_ends_early_no_thread_is_left() -> None:
    begun = []

    def read(item: int) -> int:
        begun.append(item)
        if item == 0:
            wait()
        return item

    before = threading.active_count()
    with closing(read_ahead(read, range(10**9))) as found:
        assert [next(found) for _ in range(3)] == [0, 1, 2]
    assert threading.active_count() == before
    assert len(begun) < 20
