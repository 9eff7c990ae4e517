# SPDX-License-Identifier: Apache-2.0
"""The status page of a board; and what it and the metrics say of servers behind a directory."""

from __future__ import annotations

from typing import Any

import pytest

from lockcache.lowlevel import Counters, Slot
from lockcache.remote import ServerCounters, ServerSeen
from lockcache_daemon.observe.board import Board, Limits
from lockcache_daemon.observe.metrics import Metrics
from lockcache_daemon.observe.status_page import render_page

COUNTERS = ServerCounters(hits=3, misses=1, puts=2, lost_puts=5, errors=7, answers=4, answers_ns=2 * 10**9)


def board_of(*servers: ServerSeen) -> Board:
    board = Board()
    board.measured("/a", Slot(1, 1), Limits())
    board.update("/a", servers=servers)
    return board


def seen(server: str, counters: ServerCounters, *, is_resting: bool = False) -> ServerSeen:
    return ServerSeen(server, counters, None, is_resting)


@pytest.mark.parametrize(
    "server, said",
    [
        (seen("redis://a:1", COUNTERS), "75.0% hits"),
        (seen("redis://a:1", COUNTERS, is_resting=True), "not asked now"),
        (seen("redis://a:1", ServerCounters()), "not reported"),
    ],
)
def test_the_page_has_a_tile_for_each_server(server: ServerSeen, said: str) -> None:
    page = render_page(board_of(server))
    assert said in page
    assert "redis://a:1" in page
    assert (", 5 puts lost, 7 errors" in page) == (server.counters.errors > 0)


def test_each_server_has_its_metrics_and_without_any_there_are_none() -> None:
    text = Metrics(board_of(seen("redis://a:1", COUNTERS), seen("redis://b:2", COUNTERS, is_resting=True))).text()
    lines = text.decode().splitlines()
    assert 'lockcache_remote_hits_total{directory="/a",server="redis://a:1"} 3.0' in lines
    assert 'lockcache_remote_up{directory="/a",server="redis://a:1"} 1.0' in lines
    assert 'lockcache_remote_up{directory="/a",server="redis://b:2"} 0.0' in lines
    assert 'lockcache_remote_answer_seconds_total{directory="/a",server="redis://b:2"} 2.0' in lines
    assert b"lockcache_remote_" not in Metrics(board_of()).text()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"is_standby": True}, "standby"),
        ({"problem": "broken"}, "a step fails"),
        ({"clients": Counters(hits=1, saved_ns=90 * 10**9)}, "compiling saved"),
        ({"scrubbed_entries": 1234, "corrupt_entries": 5}, "5 corrupt, 0 unreadable"),
        ({"namespaces": {"triton": Slot(2_000_000, 7), "unknown": Slot(1, 1)}}, "by namespace"),
        ({"architectures": {"sm_90": Slot(2_000_000, 7), "unknown": Slot(1, 1)}}, "by architecture"),
    ],
)
def test_the_page_says_what_is_so_and_not_what_is_not(changes: dict[str, Any], said: str) -> None:
    board = board_of()
    before = render_page(board)
    board.update("/a", **changes)
    assert said in render_page(board)
    assert said not in before
