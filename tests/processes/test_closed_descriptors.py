# SPDX-License-Identifier: Apache-2.0
"""A program that closes all descriptors, as one that becomes a service does, and opens files of its own under them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import UPDATE
from lockcache.single_flight import Turn
from tests.matrix_sampling import diagonals

_CONTENT = b"U" * 20_000


def _store(cache: FileStreamProgramCache) -> None:
    for number in range(50):
        cache[b"%d" % number] = os.urandom(3000)


def _replace(cache: FileStreamProgramCache) -> None:
    cache[b"a"] = b"2" * 1000


def _compute(cache: FileStreamProgramCache) -> None:
    assert cache.get_or_compute(b"new", lambda: b"3") == b"3"


def _delete(cache: FileStreamProgramCache) -> None:
    del cache[b"a"]


def _close(cache: FileStreamProgramCache) -> None:
    cache.close()


def _recount(cache: FileStreamProgramCache) -> None:
    assert cache.recount() == []


def _clear(cache: FileStreamProgramCache) -> None:
    cache.clear()


def _drop(_: FileStreamProgramCache) -> None:
    """Leave the cache to be collected, which nobody closes."""


CALLS = [
    pytest.param(call, id=call.__name__[1:])
    for call in (_store, _replace, _compute, _delete, _close, _recount, _clear, _drop)
]
#: How many files have the numbers, and the lock on them.
NUMBERS = [
    pytest.param(12, fcntl.LOCK_UN, id="other files have the numbers"),
    pytest.param(12, fcntl.LOCK_SH, id="and are read"),
    pytest.param(12, fcntl.LOCK_EX, id="and are written"),
    pytest.param(0, fcntl.LOCK_UN, id="nothing has the numbers"),
]


def _close_all_and_open(paths: list[Path]) -> list[int]:
    """Close every descriptor but the standard ones, and open files under the first numbers."""
    os.closerange(3, 1024)
    numbers = []
    for path in paths:
        path.write_bytes(_CONTENT)
        numbers.append(os.open(path, os.O_RDWR))
    return numbers


def _use(root: Path, call: Callable[[FileStreamProgramCache], None], files: int, lock: int) -> str:
    """``lock``: the lock that the program has on its files, before and after."""
    cache = FileStreamProgramCache(root / "cache", max_size_bytes="20M")
    cache[b"a"] = b"1" * 1000
    cache[b"b"] = b"1" * 1000
    paths = [root / f"user{number}" for number in range(files)]
    lost = list[object]()
    sys.unraisablehook = lambda unraisable: lost.append(unraisable.exc_value)
    numbers = _close_all_and_open(paths)
    for number in numbers:
        fcntl.flock(number, lock)
    try:
        call(cache)
        if call is not _drop:
            cache.close()
    except OSError as error:
        return f"raised {error}"
    del cache
    gc.collect()
    if lost:
        return f"raised where nobody sees it: {lost}"
    for path, number in zip(paths, numbers, strict=True):
        if os.read(number, len(_CONTENT) + 1) != _CONTENT:
            return f"{path.name} was closed or written to"
        with path.open("rb") as other:
            if _lock_left_by(other) != lock:
                return f"the lock of {path.name} is another one"
    with FileStreamProgramCache(root / "cache") as again:
        if again.stats().dropped_writes or again.recount():
            return "a write was dropped, or counted wrongly"
    return ""


def _lock_left_by(other: IO[bytes]) -> int:
    """Returns the lock that somebody has on a file, by what is left for another one to take."""
    for lock, left in ((fcntl.LOCK_EX, fcntl.LOCK_UN), (fcntl.LOCK_SH, fcntl.LOCK_SH)):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(other, lock | fcntl.LOCK_NB)
            return left
    return fcntl.LOCK_EX


@pytest.mark.parametrize("files, lock, call", diagonals(NUMBERS, CALLS, 4))
def test_files_under_the_numbers_of_kept_descriptors_are_left_alone(
    call: Callable[[FileStreamProgramCache], None], files: int, lock: int, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    child = os.fork()
    if not child:
        try:
            said.write_text(_use(tmp_path, call, files, lock))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == ""


def _report_and_store(cache: FileStreamProgramCache) -> None:
    """Have the page's descriptor forgotten by a report before it is asked for again."""
    cache.stats()
    _store(cache)


@pytest.mark.parametrize("length", [0, 5000, 20_000])
@pytest.mark.parametrize("call", [_store, _report_and_store], ids=["store", "report and store"])
def test_no_file_of_the_program_is_taken_for_the_state_page(
    call: Callable[[FileStreamProgramCache], None], length: int, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    child = os.fork()
    if not child:
        try:
            cache = FileStreamProgramCache(tmp_path / "cache", max_size_bytes="20M")
            cache[b"a"] = b"1" * 1000
            paths = [tmp_path / f"user{number}" for number in range(12)]
            _close_all_and_open(paths)
            for path in paths:
                os.truncate(path, length)
            call(cache)
            said.write_text(" ".join(p.name for p in paths if p.read_bytes() != _CONTENT[:length]))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == ""


@pytest.mark.parametrize("failed", [False, True], ids=["stored", "failed"])
def test_a_turn_that_outlasts_its_descriptor_leaves_files_of_the_program_alone(failed: bool, tmp_path: Path) -> None:
    said = tmp_path / "said"
    child = os.fork()
    if not child:
        try:
            cache = FileStreamProgramCache(tmp_path / "cache")
            turn = cache.begin(b"k")
            assert isinstance(turn, Turn)
            [lease] = (tmp_path / "cache/lockcache/leases").iterdir()
            os.mkfifo(lease.with_suffix(".bell"))  # as if another process waited
            paths = [tmp_path / f"user{number}" for number in range(12)]
            numbers = _close_all_and_open(paths)
            turn.give_up(failed=True) if failed else turn.store(b"v")
            for number in numbers:
                os.fstat(number)
            said.write_text(" ".join(p.name for p in paths if p.read_bytes() != _CONTENT))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == ""


def test_a_view_that_is_dropped_closes_no_file_of_the_program(tmp_path: Path) -> None:
    said = tmp_path / "said"
    child = os.fork()
    if not child:
        try:
            cache = FileStreamProgramCache(tmp_path / "cache")
            cache.put_files(b"f", {"a": b"1"})
            view = cache.view_files(b"f")
            assert view is not None
            numbers = _close_all_and_open([tmp_path / f"user{number}" for number in range(12)])
            del view
            gc.collect()
            for number in numbers:
                os.fstat(number)
            said.write_text("")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == ""


@pytest.mark.parametrize("file", ["locks/00", "locks/directory", "locks/room", "leases/name.0"])
def test_a_child_has_nothing_of_what_a_thread_of_its_parent_was_in_the_midst_of_opening(
    file: str, tmp_path: Path
) -> None:
    cache = FileStreamProgramCache(tmp_path / "cache")
    path = tmp_path / "cache/lockcache" / file
    path.parent.mkdir(exist_ok=True)
    fd = os.open(path, UPDATE | os.O_CREAT)  # no object owns it yet
    child = os.fork()
    if not child:
        try:
            os.fstat(fd)
        except OSError:
            os._exit(0)
        os._exit(1)
    os.close(fd)
    assert os.waitpid(child, 0)[1] == 0
    cache.close()
