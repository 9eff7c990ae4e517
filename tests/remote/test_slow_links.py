# SPDX-License-Identifier: Apache-2.0
"""Large entries over a link of a known rate: they arrive while their bytes come, or are one warning, and no silence."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lockcache import RemoteProgramCache
from lockcache.remote.servers import more_seconds
from lockcache.remote.wait_limits import _patience
from tests.remote.servers import KINDS, FaultProxy, store_all

_LARGE = b"large entry " * 2_000_000  # 24 MB
_SMALL = b"small entry"
#: Over 30 MB/s the large one takes 0.8 s, longer than a silent server is waited for.
_FAST, _SLOW = 30e6, 2e6


class _Link(FaultProxy):
    """A link to a good server: so many bytes of answers in a second, as far as this machine runs it."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        super().__init__(port)

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        if not is_answer:
            super()._pump(source, target, is_answer)
            return
        with contextlib.suppress(OSError):
            free_at = 0.0
            while chunk := source.recv(65_536):
                target.sendall(chunk)
                # What was missed of the rate is caught up with for a moment, and an idle link saves nothing up.
                free_at = max(free_at, time.monotonic() - 0.2) + len(chunk) / self._bytes_per_second
                time.sleep(max(0.0, free_at - time.monotonic()))
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module", params=list(KINDS))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = KINDS[request.param](tmp_path_factory.mktemp(request.param))
    with RemoteProgramCache(server.url) as cache:
        store_all(cache, [("small", _SMALL), ("large", _LARGE)])
        assert cache.remote_stats().lost_puts == 0
    yield server
    server.kill()


def _behind(server: Any, rate: float) -> tuple[_Link, str]:
    link = _Link(server.port, rate)
    return link, re.sub(rf"(:|%3A){server.port}\b", rf"\g<1>{link.port}", server.url)


@pytest.mark.slow
def test_an_entry_whose_bytes_come_is_waited_for(served: Any) -> None:
    link, url = _behind(served, _FAST)
    with contextlib.closing(link), RemoteProgramCache(url) as cache:
        assert cache.get("small") == _SMALL  # connects, which is waited for longer
        assert cache.get("large") == _LARGE
        assert cache.remote_stats().errors == 0


@pytest.mark.slow
def test_an_entry_for_which_the_link_is_too_slow_is_one_warning(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    link, url = _behind(served, _SLOW)
    with contextlib.closing(link), caplog.at_level(logging.WARNING, "lockcache"):
        with RemoteProgramCache(url) as cache:
            assert cache.get("small") == _SMALL
            assert cache.get("large") is None
            assert not cache._store.link.breaker.is_open(), "the server lives"
        _patience.clear()  # as another process has it
        with RemoteProgramCache(url) as other:
            assert other.get("small") == _SMALL
    [words] = [record.message for record in caplog.records]
    assert "MB of an entry came in" in words


def test_what_is_waited_for_more_has_a_bound() -> None:
    assert [more_seconds(size) for size in (0, 10**7, 2**26, 2**60)] == [0, 1, 2**26 / 10**7, 2**26 / 10**7]
