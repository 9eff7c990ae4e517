# SPDX-License-Identifier: Apache-2.0
"""Turns of callers that only look up and store: one for each thread, and how it ends."""

from __future__ import annotations

from pathlib import Path

from lockcache import FileStreamProgramCache
from lockcache.filestream.compile_once import ImplicitTurns
from lockcache.filestream.disk.layout import entry_name
from tests.threads import run_threads

NAME, OTHER = entry_name(b"k"), entry_name(b"other")


def test_a_thread_has_its_turn_until_it_stores_the_key_or_looks_up_something_else(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        turns = ImplicitTurns(cache._parts.once)
        turns.end_mine()  # without one
        assert turns.stored(NAME, was_dropped=False) == 0
        assert turns.take(NAME) is None
        turn = turns.mine(NAME)
        assert turn is not None
        assert turns.mine(OTHER) is None
        run_threads(lambda: turns.end_mine() or turns.stored(NAME, was_dropped=False), [()])
        assert turns.stored(OTHER, was_dropped=False) == 0
        assert turn.is_held, "neither another thread nor another key ends it"
        assert turns.stored(NAME, was_dropped=False) > 0
        assert (turn.is_held, turns.mine(NAME)) == (False, None)
        turns.take(OTHER)
        turn = turns.mine(OTHER)
        turns.end_mine()
        assert (turn.is_held, turns.mine(OTHER)) == (False, None)
