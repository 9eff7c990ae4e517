# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's libraries on lockcache: folders, killed builders, headers, what has a key, and what is built without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.support import Programs, answer, building, site_of, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

LOCKCACHE = [sys.executable, "-m", "lockcache"]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs("flashinfer", tmp_path)


def _ops(tmp_path: Path) -> Path:
    """The folder in which programs that share one have their libraries."""
    [found] = (tmp_path / "own/.cache/flashinfer").glob("*/*/cached_ops")
    return found


def _of_all(answers: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(found["wrong"], found["failed"], found["compiled"]) for found in answers]


def test_a_stored_library_is_what_flashinfer_builds_without_lockcache(programs: Programs) -> None:
    [own] = programs.run(1, [0, 1], "own")
    [cold], [warm] = programs.run(1, [0, 1]), programs.run(1, [0, 1])
    assert (own["compiled"], cold["compiled"], warm["compiled"]) == (2, 2, 0)
    assert len({*own["digests"]}) == 2
    assert own["digests"] == cold["digests"] == warm["digests"]


def test_processes_that_share_a_folder_build_each_library_once_and_leave_no_more_than_it(
    programs: Programs, tmp_path: Path
) -> None:
    for compiled in (2, 0):
        assert total(answers := programs.run(3, [0, 1], "one-folder"), "compiled") == compiled
        assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * 3
    for name in ("kernel0", "kernel1"):
        assert sorted(os.listdir(_ops(tmp_path) / name)) == ["build.ninja", f"{name}.so"]


def test_entries_have_the_names_of_their_libraries_and_costs(programs: Programs) -> None:
    programs.run(1, [0])
    command = [*LOCKCACHE, "ls", "--json", programs.directory]
    [listed] = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    assert "kernel0" in json.dumps(listed)
    assert listed["cost_ns"] > 0


@pytest.mark.parametrize("words", [(), ("one-folder",)], ids=["own-folders", "one-folder"])
def test_a_builder_that_is_killed_frees_its_turn_at_once_and_its_ninja_disturbs_nobody(
    words: tuple[str, ...], programs: Programs, tmp_path: Path
) -> None:
    variables = {"LOCKCACHE_LEASE_TIMEOUT": "1h"}
    with building(programs, tmp_path, *words) as builder, programs.started(2, *words, **variables) as waiting:
        for process in waiting:
            tell(process, [0])
        builder.kill()
        builder.wait()
        # The killed one's compiler and ninja are still there.
        answers = [answer(process) for process in waiting]
    assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * 2
    assert total(answers, "compiled") == 1
    assert answers[0]["digests"] == answers[1]["digests"]


def test_what_a_killed_builder_left_goes_with_the_next_build(programs: Programs, tmp_path: Path) -> None:
    with building(programs, tmp_path, "one-folder") as builder:
        builder.kill()
        builder.wait()
    folder = _ops(tmp_path) / "kernel0"
    [staged] = [path for path in folder.iterdir() if path.is_dir()]
    os.utime(staged, (1, 1))
    assert _of_all(programs.run(1, [0], "one-folder")) == [(0, 0, 1)]
    assert sorted(os.listdir(folder)) == ["build.ninja", "kernel0.so"]


def test_flags_variables_of_compilers_and_the_toolkit_count(programs: Programs, tmp_path: Path) -> None:
    """Of what FlashInfer's own folder has nothing in its name."""
    assert programs.run(1, [0])[0]["compiled"] == 1
    assert programs.run(1, [0], FLAGS="-O2")[0]["compiled"] == 1
    assert programs.run(1, [0], CPATH="/nowhere")[0]["compiled"] == 1
    assert programs.run(1, [0], FLASHINFER_EXTRA_CFLAGS="-DMORE")[0]["compiled"] == 1
    another = tmp_path / "another-toolkit"
    shutil.copytree(tmp_path / "toolkit", another)
    assert programs.run(1, [0], CUDA_HOME=str(another))[0]["compiled"] == 0


def test_a_changed_source_counts_though_its_time_is_the_same(programs: Programs, tmp_path: Path) -> None:
    programs.run(1, [0], "one-folder")
    [source] = (tmp_path / "own/.cache/flashinfer").glob("*/*/generated/kernel0/main.cc")
    before = source.stat()
    source.write_text(source.read_text().replace("* 2", "* 3"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _of_all(programs.run(1, [0], "one-folder")) == [(1, 0, 1)]


class AnotherSite:
    """Another environment, with a copy of the headers that FlashInfer needs of tvm_ffi."""

    def __init__(self, path: Path) -> None:
        site = Path(site_of("flashinfer"))
        self.path = path
        for name in ("tvm_ffi", *(each.name for each in site.glob("apache_tvm_ffi-*.dist-info"))):
            shutil.copytree(site / name, path / name)
        self.header = path / "tvm_ffi/include/tvm/ffi/c_api.h"


def test_in_another_environment_it_is_found_unless_a_header_was_changed_there(
    programs: Programs, tmp_path: Path
) -> None:
    other = AnotherSite(tmp_path / "site")
    variables = {"PYTHONPATH": f"{programs.environment({})['PYTHONPATH']}{os.pathsep}{other.path}"}
    assert programs.run(1, [0])[0]["compiled"] == 1
    assert programs.run(1, [0], **variables)[0]["compiled"] == 0

    with other.header.open("a") as file:
        file.write("/* changed */\n")
    for words in ((), ("one-folder",)):  # what is stored, and in a folder of its own FlashInfer's own way
        assert programs.run(1, [0, 1], *words, **variables)[0]["compiled"] == 2
    assert programs.run(1, [0, 1], "one-folder", **variables)[0]["compiled"] == 0, "found by FlashInfer's own ninja"
    errors = programs.errors.read_text()
    assert "kernel0: it is stored with headers that were changed here" in errors
    assert "kernel1: apache-tvm-ffi was changed after it was installed: tvm/ffi/c_api.h" in errors
    assert programs.run(1, [1])[0]["compiled"] == 1, "nothing was stored there"


def test_a_header_that_times_do_not_show_to_be_changed_is_noticed_after_the_build_and_flashinfer_builds(
    programs: Programs, tmp_path: Path
) -> None:
    """As in a copy of a whole environment, where the list of digests may be the younger file."""
    other = AnotherSite(tmp_path / "site")
    variables = {"PYTHONPATH": f"{programs.environment({})['PYTHONPATH']}{os.pathsep}{other.path}"}
    with other.header.open("a") as file:
        file.write("/* changed */\n")
    [record] = other.path.glob("apache_tvm_ffi-*.dist-info/RECORD")
    while record.stat().st_ctime_ns <= other.header.stat().st_ctime_ns:
        record.touch()
    for compiled in (2, 0):  # once for lockcache, and once by FlashInfer's own ninja, which finds it then
        assert _of_all(programs.run(1, [0], "one-folder", **variables)) == [(0, 0, compiled)]
    assert "kernel0: apache-tvm-ffi was changed after it was installed" in programs.errors.read_text()
    assert [*(programs.directory / "entries").glob("??/*")] == []


@pytest.mark.parametrize("flags", ["--save-temps", "-I.", "-DNAME=$$(echo 7)"])
def test_what_has_no_key_is_built_by_flashinfer_with_one_line(flags: str, programs: Programs) -> None:
    for compiled in (1, 0):
        assert _of_all(programs.run(1, [0], "one-folder", FLAGS=flags)) == [(0, 0, compiled)]
    assert programs.errors.read_text().count("keeps in its own cache what lockcache cannot share") == 2


def test_without_lockcache_flashinfer_takes_no_library_of_lockcache_for_its_own(programs: Programs) -> None:
    assert programs.run(1, [0], "one-folder")[0]["compiled"] == 1
    assert programs.run(1, [0], "own")[0]["compiled"] == 1
    assert programs.run(1, [0], "own")[0]["compiled"] == 0


def test_cuda_sources_are_compiled_once(programs: Programs) -> None:
    """With a real nvcc. No kernel is launched."""
    nvcc = shutil.which("nvcc") or pytest.skip("needs nvcc")
    said = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False).stderr
    toolkit = os.path.realpath(next((line.partition("TOP=")[2] for line in said.splitlines() if "TOP=" in line), ""))
    if not os.path.isfile(f"{toolkit}/include/cuda_runtime.h"):
        pytest.skip("needs the headers of CUDA")
    first, second = (programs.run(1, [0], "cuda", CUDA_HOME=toolkit)[0] for _ in range(2))
    assert (first["wrong"], first["failed"], second["wrong"], second["failed"]) == (0, 0, 0, 0)
    assert first["digests"] == second["digests"]
    command = [*LOCKCACHE, "stats", "--json", programs.directory]
    assert json.loads(subprocess.check_output(command, text=True))["entries"] == 1
