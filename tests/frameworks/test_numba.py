"""numba-cuda on lockcache: one function that several processes save for hundreds of types at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.support import Programs, answer, tell

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_of_800_saves_at_once_none_is_lost_or_of_another_type(tmp_path: Path) -> None:
    programs, share = Programs("numba", tmp_path), 200
    with programs.started(4, program="numba_saves") as running:
        for number, process in enumerate(running):
            tell(process, range(number * share, (number + 1) * share))
        saved = [answer(process) for process in running]
    assert [(found["wrong"], found["failed"], found["compiled"]) for found in saved] == [(0, 0, share)] * 4
    [found] = programs.run(1, range(4 * share), program="numba_saves")
    assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, 0)


def test_types_that_print_alike_and_kernels_that_are_compiled_again(tmp_path: Path) -> None:
    programs = Programs("numba", tmp_path)
    for most in (4, 1):  # the second process finds all but what depends on a constant
        [found] = programs.run(1, range(5), program="numba_alike")
        assert (found["wrong"], found["failed"]) == (0, 0), found
        assert found["compiled"] <= most
