"""Real frameworks on lockcache, in processes that begin together: each kernel compiled once, nothing raised, ever.

``make frameworks`` makes the virtual environments and runs this; where one is missing its tests are skipped.
"""

from __future__ import annotations

import contextlib
import random
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.crash.measure import accounted, on_disk
from tests.frameworks.support import HANG_SECONDS, Programs, answer, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(6)


@pytest.fixture(params=["jax", "cupy", "numba", "triton", "warp"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    return Programs(request.param, tmp_path)


def assert_all_well(answers: list[dict[str, object]]) -> None:
    assert [(found["wrong"], found["failed"], found["is_installed"]) for found in answers] == [(0, 0, True)] * len(
        answers
    )


def test_a_cold_herd_compiles_each_kernel_once_and_a_warm_process_none(programs: Programs) -> None:
    cold = programs.run(6, KERNELS)
    assert_all_well(cold)
    assert total(cold, "compiled") == len(KERNELS)
    warm = programs.run(2, KERNELS)
    assert_all_well(warm)
    assert total(warm, "compiled") == 0


def test_under_a_cap_the_directory_holds_no_more(programs: Programs) -> None:
    cap, ended, peaks = 20_000, threading.Event(), [0]
    with FileStreamProgramCache(programs.directory, max_size_bytes=cap) as cache:

        def watch() -> None:
            while not ended.is_set():
                peaks.append(_bytes_on_disk(programs.directory))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answers = programs.run(4, range(12))
        finally:
            ended.set()
            watcher.join()
        assert cache.recount() == []
    assert_all_well(answers)
    assert 0 < max(peaks) <= cap
    assert total(answers, "compiled") >= 12


def _bytes_on_disk(directory: Path) -> int:
    """Of entries and writes in progress: what counts in a directory that a test makes, instead of blocks."""
    found = 0
    for part in ("entries", "tmp"):
        for path in (directory / part).rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                found += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return found


def test_a_damaged_entry_is_compiled_again_once_and_repaired(programs: Programs) -> None:
    programs.run(1, KERNELS)
    files = [path for path in (programs.directory / "entries").rglob("*") if path.is_file()]
    assert len(files) >= len(KERNELS)
    for number, path in enumerate(files):
        data = bytearray(path.read_bytes())
        if number % 2:
            data[len(data) // 2] ^= 0xFF
        else:
            del data[len(data) // 2 :]
        path.write_bytes(data)
    again = programs.run(4, KERNELS)
    assert_all_well(again)
    assert total(again, "compiled") == len(KERNELS)
    assert total(programs.run(1, KERNELS), "compiled") == 0


def test_where_compiling_fails_the_next_one_has_its_own_error_at_once(programs: Programs) -> None:
    with programs.started(2) as running:
        tell(running[0], [-1])
        first = answer(running[0])
        began = time.monotonic()
        tell(running[1], [-1])
        second = answer(running[1])
    assert first["failed"] == second["failed"] == 1
    assert first["error"].split(":")[0] == second["error"].split(":")[0]
    # The lease timeout is a minute: who waited for a turn that nobody gave up would take that long.
    assert time.monotonic() - began < HANG_SECONDS / 10


@pytest.mark.root
def test_a_directory_that_others_may_write_to_is_one_warning_and_the_frameworks_own_cache(programs: Programs) -> None:
    programs.directory.mkdir()
    programs.directory.chmod(0o777)
    [found] = programs.run(1, KERNELS)
    assert (found["wrong"], found["failed"], found["is_installed"]) == (0, 0, False)
    assert programs.errors.read_text().count("goes on with its own cache") == 1
    assert list(programs.directory.iterdir()) == []


def test_a_door_that_has_changed_is_one_warning_and_the_frameworks_own_cache(programs: Programs) -> None:
    [found] = programs.run(1, KERNELS, "old-door")
    assert (found["wrong"], found["failed"], found["is_installed"]) == (0, 0, False)
    assert programs.errors.read_text().count("goes on with its own cache") == 1


@pytest.mark.root
def test_on_a_golden_directory_that_may_only_be_read_all_kernels_run(programs: Programs, mount_tmpfs) -> None:
    disk = mount_tmpfs("size=64m")
    programs.directory = disk / "cache"
    assert_all_well(programs.run(1, list(KERNELS)[:3]))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    answers = programs.run(2, KERNELS)
    assert_all_well(answers)
    assert [found["compiled"] for found in answers] == [3, 3]
    assert "goes on with its own cache" not in programs.errors.read_text()


def test_what_is_damaged_in_warps_own_directory_is_written_again_from_the_entry(tmp_path: Path) -> None:
    programs = Programs("warp", tmp_path)
    programs.run(1, KERNELS)
    files = [path for path in (tmp_path / "own").rglob("*") if path.suffix in (".o", ".meta")]
    assert len(files) == 2 * len(KERNELS)
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = programs.run(4, KERNELS)
    assert_all_well(again)
    assert total(again, "compiled") == 0


def test_warp_processes_that_are_killed_anywhere_leave_whole_modules(tmp_path: Path) -> None:
    programs, choose = Programs("warp", tmp_path), random.Random(7)
    for serial in range(4):
        with programs.started(2) as running:
            for process in running:
                tell(process, [serial, serial + 1])
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(choose.random())
            for process in running:
                process.kill()
    assert_all_well(programs.run(2, range(5)))
    cache = FileStreamProgramCache(programs.directory)
    cache.recount()
    assert accounted(programs.directory) == on_disk(programs.directory)
