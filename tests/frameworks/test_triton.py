# SPDX-License-Identifier: Apache-2.0
"""Triton on lockcache: launchers, views of kernels, two writers of one key, and processes that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import Layout, read_counters
from tests.crash.measure import accounted, on_disk
from tests.frameworks.support import PROGRAMS, ROOT, Programs, answer, site_of, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HOOK = ROOT / "lockcache/integrations/hook"
KERNELS = range(8)
LAUNCHERS = range(1000, 1004)
VARIABLE = {"TRITON_CACHE_MANAGER": "lockcache.integrations.triton:LockcacheManager"}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs("triton", tmp_path)


def _assert_all_well(answers: list[dict[str, object]]) -> None:
    assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * len(answers), answers


def test_kernels_and_launchers_are_compiled_once_by_all_and_leave_nothing_elsewhere(
    programs: Programs, tmp_path: Path
) -> None:
    kernels = programs.run(8, KERNELS, "by-variable", **VARIABLE)
    launchers = programs.run(6, LAUNCHERS, "by-variable", **VARIABLE)
    _assert_all_well([*kernels, *launchers])
    assert (total(kernels, "compiled"), total(launchers, "compiled")) == (8, 4)
    warm = programs.run(2, [*KERNELS, *LAUNCHERS], "by-variable", **VARIABLE)
    _assert_all_well(warm)
    assert total(warm, "compiled") == 0
    assert len([*(programs.directory / "entries").glob("??/*")]) == 12
    assert not (tmp_path / "own").exists()
    assert _left_in(tmp_path) == []
    cache = FileStreamProgramCache(programs.directory)
    assert cache.recount() == []
    assert accounted(programs.directory) == on_disk(programs.directory)


def test_what_a_process_compiled_is_not_found_in_the_last_line_of_lockcache_run(programs: Programs) -> None:
    prefix = [sys.executable, "-m", "lockcache", "run", "--"]
    for hits, line in ((0, "1 process: 0 found, 2 compiled; in"), (2, "1 process: 2 found, 0 compiled; ")):
        programs.errors.unlink(missing_ok=True)
        with programs.started(1, "by-variable", prefix=prefix) as [process]:
            tell(process, [0, 1000])
            _assert_all_well([answer(process)])
            process.stdin.close()
            process.wait()
        assert f"lockcache: {line}" in programs.errors.read_text()
        assert read_counters(Layout(str(programs.directory))).hits == hits


def test_lockcache_run_and_a_manager_of_the_users(programs: Programs, tmp_path: Path) -> None:
    hook = {"LOCKCACHE_INSTALL": "triton", "PYTHONPATH": f"{HOOK}:{ROOT}"}
    for compiled in (2, 0):
        [found] = programs.run(1, [0, 1000], "by-variable", **hook)
        _assert_all_well([found])
        assert found["compiled"] == compiled
    assert not (tmp_path / "own").exists()
    # Who has chosen another manager keeps it.
    [found] = programs.run(1, [0], "by-variable", **hook, TRITON_CACHE_MANAGER="triton.runtime.cache:FileCacheManager")
    assert found["compiled"] == 1
    assert "it has another cache manager" in programs.errors.read_text()


@pytest.mark.parametrize("way", [VARIABLE, {"LOCKCACHE_INSTALL": "triton", "PYTHONPATH": f"{HOOK}:{ROOT}"}])
def test_the_oldest_triton_which_has_no_knobs_shares_its_kernels(way: dict[str, str], tmp_path: Path) -> None:
    programs = Programs("triton-oldest", tmp_path)
    for compiled in (2, 0):
        found = programs.run(2, [0, 1], "by-variable", **way)
        _assert_all_well(found)
        assert total(found, "compiled") == compiled
    assert not (tmp_path / "own").exists()
    other = "triton.runtime.cache:FileCacheManager"
    [found] = programs.run(1, [0], "by-variable", **{**way, "TRITON_CACHE_MANAGER": other})
    assert found["compiled"] == 1


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_cut, _flip, Path.unlink], ids=["cut", "flipped", "gone"])
@pytest.mark.parametrize("what", ["entries/??/*", "lockcache/views/??/*/*"])
def test_what_is_damaged_is_repaired_or_compiled_again_once(programs: Programs, what: str, damage) -> None:
    _assert_all_well(programs.run(1, [*KERNELS, *LAUNCHERS]))
    files = [*programs.directory.glob(what)]
    assert len(files) >= 12
    for path in files:
        damage(path)
    again = programs.run(4, [*KERNELS, *LAUNCHERS])
    _assert_all_well(again)
    assert total(again, "compiled") == (12 if what.startswith("entries") else 0)
    warm = programs.run(1, [*KERNELS, *LAUNCHERS])
    _assert_all_well(warm)
    assert total(warm, "compiled") == 0


@pytest.mark.parametrize("cap", [None, 120_000], ids=["without a cap", "under a cap"])
def test_two_writers_of_one_key_never_give_two_readers_a_mixed_group(programs: Programs, cap: int | None) -> None:
    FileStreamProgramCache(programs.directory, max_size_bytes=cap).close()
    with contextlib.ExitStack() as stack:
        roles = ["writer", "writer", "reader", "reader"]
        running = [
            stack.enter_context(programs.started(1, role, program="triton_group", **VARIABLE))[0] for role in roles
        ]
        for process in running:
            tell(process, [10])
        found = [answer(process) for process in running]
    assert [(each["mixed"], each["failed"]) for each in found] == [(0, 0)] * 4, found
    assert min(each["whole"] for each in found) > 20, found


def _left_in(tmp_path: Path) -> list[Path]:
    """Temporary folders of processes."""
    return [*tmp_path.glob("lockcache-triton-*")]


def test_processes_that_are_killed_anywhere_leave_whole_kernels_and_no_debt(programs: Programs, tmp_path: Path) -> None:
    choose = random.Random(5)
    for serial in range(12):
        with programs.started(2) as running:
            for process in running:
                tell(process, [serial, serial + 1, *LAUNCHERS])
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(choose.random())
            for process in running:
                process.kill()
    found = programs.run(2, [*range(13), *LAUNCHERS])
    _assert_all_well(found)
    cache = FileStreamProgramCache(programs.directory)
    cache.recount()
    assert accounted(programs.directory) == on_disk(programs.directory)
    assert [*(programs.directory / "tmp").iterdir()] == []
    for folder in _left_in(tmp_path):
        os.utime(folder, (1, 1))  # as if it were not just now
    _assert_all_well(programs.run(1, [20]))
    assert _left_in(tmp_path) == []


@pytest.mark.root
def test_a_golden_directory_without_views_serves_its_kernels(programs: Programs, mount_tmpfs, tmp_path: Path) -> None:
    disk = mount_tmpfs("size=64m")
    programs.directory = disk / "cache"
    _assert_all_well(programs.run(1, [*KERNELS[:4], *LAUNCHERS]))
    subprocess.run(["rm", "-r", programs.directory / "lockcache/views"], check=True)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    answers = programs.run(2, [*KERNELS, *LAUNCHERS])
    _assert_all_well(answers)
    assert [found["compiled"] for found in answers] == [4, 4]
    assert "goes on with its own cache" not in programs.errors.read_text()


@pytest.mark.parametrize("first", ["", "gluon-first"])
def test_whatever_kind_of_kernel_fails_nobody_waits_for_it_while_its_error_is_kept(
    programs: Programs, first: str
) -> None:
    """Gluon is imported before the first kernel is compiled or after it, and kernels are compiled within another."""
    said = programs.call(str(PROGRAMS / "triton_turns.py"), first, **VARIABLE)
    assert json.loads(said) == {"works": 0, "fails": 0, "gluon": 0, "nesting": 0, "errors": 4}


def test_a_warm_kernel_is_two_calls_by_name_before_triton_opens_its_files(programs: Programs, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    _assert_all_well(programs.run(1, [0, 1]))
    log = tmp_path / "log"
    strace = ["strace", "-f", "-o", str(log), "-qq", "-e", "signal=none", "-e", "trace=file"]
    _assert_all_well(programs.run(1, [0, 1], prefix=strace))
    calls = [line for line in log.read_text().splitlines() if str(programs.directory) in line]
    # Of the second kernel, and without what a process asks of each shard once.
    opened = [line for line in calls if " openat(" in line]
    last = max(number for number, line in enumerate(opened) if "/entries/" in line)
    ours, tritons = opened[last : last + 2], opened[last + 2 :]
    assert "/entries/" in ours[0]
    assert "/views/" in ours[1]
    assert [line for line in tritons if "/kernel." not in line] == []
    assert calls[calls.index(opened[last]) :] == [*ours, *tritons]


AUTOTUNED = """
from triton.runtime.cache import get_cache_manager
manager, name = get_cache_manager("cd" * 32), "kernel.autotune.json"
found = manager.get_file(name)
print(found and open(found).read())
if not found:
    assert get_cache_manager("cd" * 32).get_file(name) is None  # nobody waits
    assert open(manager.put('{"best": 1}', name, binary=False)).read() == '{"best": 1}'
"""


def test_a_result_of_autotuning_is_stored_and_nobody_waits_for_one(programs: Programs) -> None:
    said = [programs.call("-c", AUTOTUNED, **VARIABLE) for _ in range(2)]
    assert said == ["None\n", '{"best": 1}\n']
    assert not list(programs.directory.glob("lockcache/leases/*"))


def test_inductor_finds_the_binary_by_itself_where_a_link_leads_to_the_view(tmp_path: Path) -> None:
    programs, own = Programs("inductor", tmp_path), tmp_path / "own"
    program, both = str(PROGRAMS / "inductor_links.py"), f"{ROOT}:{site_of('triton')}"
    variables = {**VARIABLE, "PYTHONPATH": both}
    whole = {"is_whole": True, "cubin_path": True, "is_static": True}
    for _ in range(2):
        assert json.loads(programs.call(program, "7", **variables)) == {"is_link": True, **whole}
    [link] = own.iterdir()
    assert link.readlink().is_relative_to(programs.directory)
    # Another version is another folder, to which the link leads from then on.
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    assert json.loads(programs.call(program, "7", **variables)) == {"is_link": True, **whole}
    # What Triton left there itself is not touched.
    link.unlink()
    link.mkdir()
    (link / "kernel.cubin").write_bytes(b"Triton's own")
    said = json.loads(programs.call(program, "7", **variables))
    assert (said["is_link"], said["is_whole"]) == (False, False)
    assert [path.name for path in own.iterdir()] == [link.name]
