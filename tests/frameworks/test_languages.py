# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL and cuTile on lockcache: the bytes, what travels to another checkout, and their own switches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.frameworks.keys_project import in_checkout
from tests.frameworks.support import PROGRAMS, Programs, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(3)


@pytest.fixture(params=["cute", "cutile"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    return Programs(request.param, tmp_path)


def _entries(programs: Programs) -> int:
    with FileStreamProgramCache(programs.directory) as cache:
        return cache.stats().entries


def test_a_stored_kernel_is_what_compiling_gives_without_lockcache(programs: Programs) -> None:
    [own] = programs.run(1, KERNELS, "own")
    [cold] = programs.run(1, KERNELS)
    [warm] = programs.run(1, KERNELS)
    assert (cold["compiled"], warm["compiled"]) == (len(KERNELS), 0)
    assert len({*own["digests"]}) == len(KERNELS)
    assert own["digests"] == cold["digests"] == warm["digests"]


def test_entries_have_the_names_of_their_functions(programs: Programs) -> None:
    programs.run(1, [0])
    listed = subprocess.run(
        [sys.executable, "-m", "lockcache", "ls", "--json", programs.directory], check=True, capture_output=True
    )
    assert {"cute": b"cutlass_host", "cutile": b'"kernel"'}[programs.name] in listed.stdout


@pytest.mark.parametrize(
    "name, variables",
    [
        ("cute", {"CUTE_DSL_NO_CACHE": "1"}),
        ("cute", {"CUTE_DSL_DISABLE_FILE_CACHING": "1"}),
        ("cute", {"CUTE_DSL_KEEP": "ptx"}),
        ("cute", {"CUTE_DSL_WARNINGS_AS_ERRORS": "1"}),
        ("cutile", {"CUDA_TILE_CACHE_DIR": "off"}),
        ("cutile", {"CUDA_TILE_CACHE_SIZE": "0"}),
    ],
)
def test_a_switch_of_its_own_has_nothing_read_or_stored(name: str, variables: dict[str, str], tmp_path: Path) -> None:
    programs = Programs(name, tmp_path)
    programs.run(1, KERNELS)
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    answers = [programs.run(1, range(4), CUTE_DSL_DUMP_DIR=str(dumps), **variables)[0] for _ in range(2)]
    assert [found["compiled"] for found in answers] == [4, 4]
    assert total(answers, "failed") == total(answers, "wrong") == 0
    assert _entries(programs) == len(KERNELS)
    assert bool([*dumps.glob("*.ptx")]) == (variables == {"CUTE_DSL_KEEP": "ptx"})


def test_in_another_checkout_what_names_no_path_is_found(programs: Programs, tmp_path: Path) -> None:
    first, second = in_checkout(programs, tmp_path / "one"), in_checkout(programs, tmp_path / "other")
    assert first["compiled"] == 2
    # cuTile always compiles with line information, so that the path is in its cubins.
    has_path = programs.name == "cutile"
    assert second["compiled"] == (2 if has_path else 0)
    assert (first["digests"] == second["digests"]) != has_path


def test_what_the_program_says_is_told_apart(programs: Programs, tmp_path: Path) -> None:
    """A constant of the kernel's module, and a function and a constant of another one."""
    found = [in_checkout(programs, tmp_path / "one")]
    changes = [("", "MASK = 3|MASK = 4"), ("language_helper", "x * factor|x + factor"), ("language_helper", "= 5|= 6")]
    for file, line in changes:
        found.append(in_checkout(programs, tmp_path / "one", file=file, line=line))
    assert [each["compiled"] for each in found] == [2] * 4
    assert len({digest for each in found for digest in each["digests"]}) == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", ["--link-libraries=library.bc", "--flatten-locs-output-json-path=places.json"])
def test_what_names_a_file_is_compiled_each_time(option: str, tmp_path: Path) -> None:
    programs, checkout = Programs("cute", tmp_path), tmp_path / "one"
    shutil.copytree(PROGRAMS, checkout)
    (checkout / "library.bc").write_text("no kernel calls a function of this")
    for _ in range(2):
        (checkout / "places.json").unlink(missing_ok=True)
        assert in_checkout(programs, checkout, OPTIONS=option)["compiled"] == 2
        assert (checkout / "places.json").exists() == ("places" in option)
    assert _entries(programs) == 0


def test_what_another_toolkits_compiler_made_is_not_found(tmp_path: Path) -> None:
    programs = Programs("cute", tmp_path)
    [newest] = programs.run(1, KERNELS)
    [older] = programs.run(1, KERNELS, LD_LIBRARY_PATH=_driver_of_cuda_12(tmp_path))
    assert (newest["compiled"], older["compiled"]) == (len(KERNELS), len(KERNELS))
    assert not {*newest["digests"]} & {*older["digests"]}


def _driver_of_cuda_12(tmp_path: Path) -> str:
    """Returns a folder with a driver that says which CUDA it supports, and does nothing else."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 12090; return 0; }")
    folder = tmp_path / "driver"
    folder.mkdir()
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return str(folder)


def test_the_oldest_cutile_that_was_tried_compiles_once_too(tmp_path: Path) -> None:
    programs = Programs("cutile-oldest", tmp_path)
    [cold], [warm] = programs.run(1, KERNELS), programs.run(1, KERNELS)
    assert (cold["is_installed"], cold["failed"], cold["wrong"]) == (True, 0, 0)
    assert (cold["compiled"], warm["compiled"]) == (len(KERNELS), 0)
    assert cold["digests"] == warm["digests"]


def test_calls_of_cute_functions_are_cached_too_and_what_the_compiler_adds_to_a_program_is_added_to_a_hit(
    tmp_path: Path,
) -> None:
    programs = Programs("cute", tmp_path)
    for compiled in (2, 0):
        found = json.loads(programs.call(str(PROGRAMS / "cute_calls.py")).splitlines()[-1])
        assert found == {"compiled": compiled, "has_ffi": True}
    assert not (tmp_path / "own").exists() or [*(tmp_path / "own").iterdir()] == []
