# SPDX-License-Identifier: Apache-2.0
"""numba-cuda and numba-cuda-mlir on lockcache: types that print alike, hundreds of saves at once, threads."""

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


def test_with_mlir_all_processes_have_the_same_bytes_as_without_lockcache(tmp_path: Path) -> None:
    programs, kernels = Programs("numba_mlir", tmp_path), range(4)
    [own] = programs.run(1, kernels, "own")
    for found in (*programs.run(4, kernels), *programs.run(1, kernels)):
        assert (found["wrong"], found["failed"], found["digests"]) == (0, 0, own["digests"])


@pytest.mark.parametrize("words", [[], ["launch"]])
def test_with_mlir_threads_that_want_one_kernel_wait_for_each_other_without_its_locks(
    tmp_path: Path, words: list[str]
) -> None:
    """A thread that waited with them would keep the one that compiles from storing, and compile too in the end."""
    programs = Programs("numba_mlir", tmp_path)
    answers = programs.run(3, range(2), *words, program="numba_mlir_threads")
    assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * 3
    assert sum(found["compiled"] for found in answers) == 4
