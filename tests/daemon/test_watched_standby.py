# SPDX-License-Identifier: Apache-2.0
"""A daemon that stands by, as others see it before and after it takes over."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.daemon.daemon_process import RunningDaemon, until
from tests.daemon.http_client import Watched, get


@pytest.mark.long
def test_a_daemon_that_stands_by_is_healthy_says_so_and_is_up_once_it_took_over(cache_path: Path) -> None:
    root = str(cache_path)
    with (
        RunningDaemon("--max-size", "1M", cache_path) as first,
        Watched("--standby", "--max-size", "1M", cache_path, starts=0) as second,
    ):
        status, _, body = get(second.port, "/healthz")
        assert (status, json.loads(body)["directories"][0]["state"]) == (200, "standby")
        assert second.metric("lockcache_directory_standby", directory=root) == 1
        assert second.metric("lockcache_directory_up", directory=root) == 0
        first.end(signal.SIGKILL)
        second.wait_for("takeover")
        until(lambda: second.metric("lockcache_directory_up", directory=root) == 1)
        assert second.metric("lockcache_directory_standby", directory=root) == 0
