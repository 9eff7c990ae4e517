"""JAX on lockcache: what JAX never stores nobody waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.support import Programs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_a_program_that_calls_back_takes_no_turn(tmp_path: Path) -> None:
    programs = Programs("jax", tmp_path)
    for compiled in (2, 1):  # the first one is compiled by each process, as without lockcache
        [found] = programs.run(1, range(2), program="jax_callbacks")
        assert (found["wrong"], found["failed"]) == (0, 0), found
        assert found["compiled"] == compiled
