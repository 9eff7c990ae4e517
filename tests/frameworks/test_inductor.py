"""Inductor on lockcache: ranks that talk to each other while they compile, and graphs of a backward pass."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from tests.frameworks.support import HANG_SECONDS, Programs, answer, tell

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_ranks_that_talk_to_each_other_while_they_compile_do_not_wait_for_each_other(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    for compiled in (2, 0):
        variables = {"RANKS_MEET_AT": f"file://{tmp_path}/meeting-{compiled}", "LOCKCACHE_LEASE_TIMEOUT": "1h"}
        with programs.started_each([{**variables, "RANK": str(rank)} for rank in range(2)]) as running:
            for process in running:
                tell(process, range(2))
            for process in running:
                assert select.select([process.stdout], [], [], HANG_SECONDS / 2)[0], "a rank waits for the other one"
            found = [answer(process) for process in running]
        assert [(each["wrong"], each["failed"], each["compiled"]) for each in found] == [(0, 0, compiled)] * 2


def test_a_backward_graph_which_another_thread_compiles_is_found_too(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    for compiled in (4, 0):
        [found] = programs.run(1, range(2), "with-gradient")
        assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, compiled)
