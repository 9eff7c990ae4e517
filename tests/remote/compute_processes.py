# SPDX-License-Identifier: Apache-2.0
"""Processes that want the same programs and count computations, and a process that holds a turn until it is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lockcache import ProgramCacheResource

_FORK = multiprocessing.get_context("fork")


def times_computed(
    opened: Callable[[int], ProgramCacheResource], folder: Path, *, processes: int, keys: int
) -> list[int]:
    """Returns how often each of ``keys`` was computed by processes that want all keys, each with ``opened(rank)``."""
    folder.mkdir(exist_ok=True)
    workers = [_FORK.Process(target=_compute, args=(opened, rank, keys, folder)) for rank in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * processes
    return [len((folder / str(number)).read_bytes()) for number in range(keys)]


def _compute(opened: Callable[[int], ProgramCacheResource], rank: int, keys: int, folder: Path) -> None:
    with opened(rank) as cache:
        for number in range(keys):

            def compute(number: int = number) -> bytes:
                with (folder / str(number)).open("ab") as file:
                    file.write(b"x")
                time.sleep(0.2)  # the time of a compilation, during which the others ask for the key
                return b"code %d" % number

            assert cache.get_or_compute(f"k{number}", compute) == b"code %d" % number


@contextlib.contextmanager
def holder_of_a_turn(cache: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that has the turn of the key ``k`` in ``cache``, an expression. The end of the block kills it."""
    program = f"import time; from lockcache import *; turn = {cache}.begin('k'); print('holding', flush=True)"
    program += "; time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"holding\n"
            yield holder
        finally:
            holder.kill()
