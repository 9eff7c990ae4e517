# SPDX-License-Identifier: Apache-2.0
"""The moment at which a caller begins to wait for another one's computation, as an event for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lockcache.filestream.compile_once import turns
from lockcache.remote import turns as remote_turns
from lockcache.single_flight import Flight


@contextmanager
def telling_of_waits(tell: Callable[[], object]) -> Iterator[None]:
    """Call ``tell`` in this block when a thread begins to wait: for a lease, another host's, or another thread."""
    told = threading.local()

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any, **keywords: Any) -> Any:
            if not getattr(told, "once", False):
                told.once = True
                tell()
            return real(*arguments, **keywords)

        return wait

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns._Wait, "pause", before(turns._Wait.pause))
        patch.setattr(remote_turns, "_recount", before(remote_turns._recount))
        patch.setattr(Flight, "end_of", before(Flight.end_of))
        yield
