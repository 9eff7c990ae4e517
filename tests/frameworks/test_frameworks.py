# SPDX-License-Identifier: Apache-2.0
"""Real frameworks on lockcache, in processes that begin together: each kernel compiled once, nothing raised, ever.

``make frameworks`` makes the virtual environments and runs this; where one is missing its tests are skipped.
"""

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
from lockcache.integrations.environment import FRAMEWORKS
from tests.crash.measure import accounted, on_disk
from tests.daemon.daemon_process import run_daemon
from tests.frameworks.support import HERDS, OLDER, PROGRAMS, ROOT, Programs, answer, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(6)
#: Frameworks of which a kernel takes seconds.
SLOW = ("inductor", "cpp_extension", "flashinfer")


@pytest.fixture(params=[*HERDS, *OLDER])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    return Programs(request.param, tmp_path)


def assert_all_well(answers: list[dict[str, object]]) -> None:
    assert [(found["wrong"], found["failed"], found["is_installed"]) for found in answers] == [(0, 0, True)] * len(
        answers
    )


def test_a_cold_herd_compiles_each_kernel_once_and_a_warm_process_none(programs: Programs) -> None:
    processes, kernels = HERDS[programs.name]
    cold = programs.run(processes, kernels)
    assert_all_well(cold)
    assert total(cold, "compiled") == len(kernels)
    warm = programs.run(2, kernels)
    assert_all_well(warm)
    assert total(warm, "compiled") == 0


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
    with programs.started(2, "keep-errors") as running:
        tell(running[0], [-1])
        first = answer(running[0])
        # Nobody has its turn, though the first one still lives and keeps its exception, as a notebook does: who waited
        # for a turn that nobody gives up would wait for the lease timeout, a minute.
        assert [*programs.directory.glob("lockcache/leases/*")] == []
        tell(running[1], [-1])
        second = answer(running[1])
    assert first["failed"] == second["failed"] == 1
    assert first["error"].split(":")[0] == second["error"].split(":")[0]


def test_under_lockcache_run_a_program_without_a_line_of_it_compiles_once(programs: Programs, tmp_path: Path) -> None:
    run = (sys.executable, "-m", "lockcache", "run", "-q", "--")
    for compiled in (len(KERNELS), 0):
        # Inductor looks in its own directory first, which is not shared, nor are those of libraries that ninja builds.
        names = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "FLASHINFER_WORKSPACE_BASE")
        own = dict.fromkeys(names, str(tmp_path / f"own-{compiled}"))
        [found] = programs.run(1, KERNELS, "own", prefix=run, **own)
        assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, compiled)
    with FileStreamProgramCache(programs.directory) as cache:
        assert cache.stats().entries >= len(KERNELS)


@pytest.mark.parametrize("adapter", [*FRAMEWORKS, *OLDER, "inductor-oldest", "cuda_core"])
@pytest.mark.parametrize("prefix", [(), (sys.executable, "-m", "lockcache", "run", "-q", "--")], ids=["alone", "run"])
def test_a_program_may_install_its_adapter_repeatedly_and_under_lockcache_run(
    prefix: tuple[str, ...], adapter: str, tmp_path: Path
) -> None:
    """Under ``lockcache run`` the framework's import, which ``install`` begins, has the adapter installed too."""
    python = sys.executable if adapter == "cuda_core" else Programs(adapter, tmp_path).python
    ended = subprocess.run(
        [*prefix, python, PROGRAMS / "installing.py", adapter.partition("-")[0]],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "LOCKCACHE_DIR": str(tmp_path / "cache")},
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == {"answers": [True] * 3, "opened": 1}, ended.stderr
    assert [line for line in ended.stderr.splitlines() if "lockcache" in line] == []


@pytest.mark.parametrize("is_stored", [False, True], ids=["cold", "stored"])
def test_whichever_call_of_the_cache_fails_the_program_goes_on(is_stored: bool, programs: Programs) -> None:
    """Each call of the system that lockcache makes in the framework's path, alone and with all later ones."""
    few = ("few",) if programs.name in SLOW else ()
    numbers = range(100, 130 if few else 180 if is_stored else 600)
    if is_stored:
        programs.run(1, numbers)
    [found] = programs.run(1, numbers, "failing", *few)
    assert found["wrong"] == []
    assert found["failures"] >= 4, "a hit is five calls"


def test_where_the_directory_vanishes_the_program_goes_on(programs: Programs) -> None:
    with programs.started(1) as [process]:
        shutil.rmtree(programs.directory)
        tell(process, KERNELS)
        assert_all_well([answer(process)])


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


@pytest.mark.parametrize("words", [["own"], []])
def test_warp_compiles_again_what_it_is_to_verify(words: list[str], tmp_path: Path) -> None:
    programs = Programs("warp", tmp_path)
    for _ in range(2):
        found = programs.run(1, range(2), "verify", *words)
        assert (total(found, "compiled"), total(found, "failed"), total(found, "wrong")) == (2, 0, 0)
    assert total(programs.run(1, range(2), *words), "compiled") == 2  # that is another module


@pytest.mark.parametrize(
    "name, words, variables, compiled",
    [
        ("cupy", [], {"CUPY_CACHE_IN_MEMORY": "1"}, 3),
        ("jax", [], {"JAX_ENABLE_COMPILATION_CACHE": "0"}, 3),
        # JAX looks up all programs, and stores none that took less.
        ("jax", [], {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}, 1),
        ("warp", ["uncached"], {}, 3),
    ],
)
def test_where_the_program_has_switched_its_cache_off_nothing_is_stored_or_read(
    name: str, words: list[str], variables: dict[str, str], compiled: int, tmp_path: Path
) -> None:
    programs = Programs(name, tmp_path)
    programs.run(1, range(2))
    with FileStreamProgramCache(programs.directory) as cache:
        before = cache.stats().entries
        for _ in range(2):
            found = programs.run(1, range(3), *words, **variables)
            assert (total(found, "compiled"), total(found, "failed"), total(found, "wrong")) == (compiled, 0, 0)
        assert cache.stats().entries == before


@pytest.mark.parametrize("name", ["cupy", "triton"])
def test_what_a_program_wants_dumped_of_a_compilation_is_dumped(name: str, tmp_path: Path) -> None:
    programs, dumps = Programs(name, tmp_path), tmp_path / "dumps"
    dumps.mkdir()
    if name == "cupy":
        programs.run(1, [-1], CUPY_DUMP_CUDA_SOURCE_ON_ERROR="1")
        assert "this is not CUDA" in programs.errors.read_text()
    else:
        programs.run(1, [0], TRITON_KERNEL_DUMP="1", TRITON_DUMP_DIR=str(dumps))
        assert [*dumps.rglob("*.ttir")]


def test_processes_that_are_killed_anywhere_leave_whole_entries_and_no_debt(programs: Programs) -> None:
    choose = random.Random(7)
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
    assert [*(programs.directory / "tmp").iterdir()] == []


def test_what_a_killed_warp_was_compiling_goes_when_the_next_one_compiles(tmp_path: Path) -> None:
    programs, own = Programs("warp", tmp_path), tmp_path / "own"
    with programs.started(1) as [process]:
        tell(process, KERNELS)
        while not (staged := [path for path in own.glob("*/*") if not path.name.startswith("wp_")]):
            assert process.poll() is None
        process.kill()
    for path in staged:
        os.utime(path, (1, 1))
    assert_all_well(programs.run(1, KERNELS))
    assert {path.name[:3] for path in own.glob("*/*")} == {"wp_"}


def test_a_daemon_evicts_whole_modules_of_warps_own_cache_and_warp_compiles_them_again(tmp_path: Path) -> None:
    programs, own = Programs("warp", tmp_path), tmp_path / "own"
    assert programs.run(1, range(4), "own")[0]["compiled"] == 4
    size = max(_bytes_of(module) for module in own.glob("*/wp_*"))
    assert run_daemon("--once", "--settle", "1ms", "--max-size", f"{2 * size}B", own).returncode == 0
    left = [*own.glob("*/wp_*")]
    assert 0 < len(left) <= 2
    assert [sorted(path.suffix for path in module.iterdir()) for module in left] == [[".cpp", ".meta", ".o"]] * len(
        left
    )
    [again] = programs.run(1, range(4), "own")
    assert (again["wrong"], again["failed"], again["compiled"]) == (0, 0, 4 - len(left))


def _bytes_of(folder: Path) -> int:
    """Returns the bytes on disk, which the daemon counts."""
    return sum(path.stat().st_blocks * 512 for path in (folder, *folder.iterdir()))
