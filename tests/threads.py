# SPDX-License-Identifier: Apache-2.0
"""Threads of a test, which goes on after all of them have ended, and raises their errors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# A guard against hangs, not a measurement.
_HANG_SECONDS = 60.0


@contextlib.contextmanager
def running(
    act: Callable[..., Any], arguments: Iterable[Sequence[Any]], until: threading.Event | None = None
) -> Iterator[list[Future[Any]]]:
    """Run ``act(*each)`` in a thread for each element of ``arguments``, and wait for all after the block.

    ``until`` is set at the end of the block, for threads that go on until then.
    """
    given = list(arguments)
    with ThreadPoolExecutor(len(given)) as threads:
        done = [threads.submit(act, *each) for each in given]
        try:
            yield done
        finally:
            if until is not None:
                until.set()
        for each in done:
            each.result(_HANG_SECONDS)


def run_threads(act: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> list[Any]:
    """Run ``act(*each)`` in a thread for each element of ``arguments``. Returns the results in order."""
    with running(act, arguments) as done:
        pass
    return [each.result() for each in done]
