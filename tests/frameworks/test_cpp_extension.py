# SPDX-License-Identifier: Apache-2.0
"""Torch's extensions on lockcache: folders, killed builders, what has a key, and what torch still builds itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.support import PROGRAMS, Programs, answer, building, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(3)
LOCKCACHE = [sys.executable, "-m", "lockcache"]

#: A module of Python's, of two files and a header.
MAIN = """#include <Python.h>
#include <factor.h>
#define NAMED(name) PyInit_##name
#define INIT(name) NAMED(name)
long more(long x);
static PyObject *compute(PyObject *, PyObject *x) { return PyLong_FromLong(more(PyLong_AsLong(x)) * FACTOR); }
static PyMethodDef methods[] = {{"compute", compute, METH_O, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "extension", "", -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
MORE = "long more(long x) { return x + 1; }\n"


#: The newest torch, and one before 2.14, which makes the file ``lock`` and removes it where 2.14 locks it.
VENVS = ["cpp_extension", "cpp_extension-2.13"]


@pytest.fixture(params=VENVS)
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    return Programs(request.param, tmp_path)


def _leaves_lock(programs: Programs) -> bool:
    return VENVS[1] not in programs.python.parts


def _files(programs: Programs, folder: Path) -> list[str]:
    """Returns the files of an extension's folder, without a ``lock`` that this torch leaves there."""
    return sorted({*os.listdir(folder)} - ({"lock"} if _leaves_lock(programs) else set()))


class Extension:
    """A user's extension of two files and a header, and nodes that load it."""

    def __init__(self, programs: Programs, path: Path) -> None:
        self._programs, self.path, self.headers = programs, path, path / "include"
        self.headers.mkdir(parents=True)
        for name, text in (("main.cpp", MAIN), ("more.cpp", MORE), ("include/factor.h", "#define FACTOR 10\n")):
            (path / name).write_text(text)
        self.errors = ""
        compiler = path / "g++"
        compiler.write_text(
            f'#!/bin/sh\ncase "$*" in *" -c "*) echo "$*" >> "$COMPILED";; esac\nexec {shutil.which("g++")} "$@"\n'
        )
        compiler.chmod(0o755)

    def load(self, node: str, *words: str, **variables: str) -> dict[str, Any]:
        """Returns what the program said on a node, which has a folder of its own."""
        sources = f"sources={self.path}/main.cpp,{self.path}/more.cpp"
        words = (
            (*words, f"include={self.headers}")
            if any("sources=" in word for word in words)
            else (*words, sources, f"include={self.headers}")
        )
        return self.call(node, *words, **variables)

    def call(self, node: str, *words: str, **variables: str) -> dict[str, Any]:
        """Returns what the program said that is given these words."""
        ended = subprocess.run(
            [*LOCKCACHE, "run", "-q", "--", self._programs.python, PROGRAMS / "cpp_extension_load.py", *words],
            env=self._programs.environment(
                {
                    "TORCH_EXTENSIONS_DIR": str(self.path / node),
                    "CXX": str(self.path / "g++"),
                    "COMPILED": str(self.path / f"{node}.compiled"),
                    **variables,
                }
            ),
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
        )
        self.errors = "".join(line for line in ended.stderr.splitlines(True) if "lockcache" in line)
        assert ended.returncode == 0, ended.stderr[-3000:]
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return found


@pytest.fixture
def extension(programs: Programs, tmp_path: Path) -> Extension:
    return Extension(programs, tmp_path / "user")


def test_a_stored_library_is_what_torch_builds_without_lockcache(programs: Programs) -> None:
    [own] = programs.run(1, KERNELS, "own")
    [cold], [warm] = programs.run(1, KERNELS), programs.run(1, KERNELS)
    assert (own["compiled"], cold["compiled"], warm["compiled"]) == (len(KERNELS), len(KERNELS), 0)
    assert len({*own["digests"]}) == len(KERNELS)
    assert own["digests"] == cold["digests"] == warm["digests"]


def test_processes_that_share_a_folder_build_each_library_once(programs: Programs, tmp_path: Path) -> None:
    for compiled in (len(KERNELS), 0):
        answers = programs.run(4, KERNELS, "one-folder")
        assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * 4
        assert total(answers, "compiled") == compiled
    for number in KERNELS:
        assert _files(programs, tmp_path / "own" / f"extension{number}") == [
            "build.ninja",
            f"extension{number}.so",
            "main.cpp",
        ]


def test_entries_have_the_names_of_their_extensions_and_costs(programs: Programs) -> None:
    programs.run(1, [0])
    command = [*LOCKCACHE, "ls", "--json", programs.directory]
    [listed] = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    assert "extension0" in json.dumps(listed)
    assert listed["cost_ns"] > 0


@pytest.mark.parametrize("words", [(), ("one-folder",)], ids=["own-folders", "one-folder"])
def test_a_builder_that_is_killed_frees_its_turn_at_once(
    words: tuple[str, ...], programs: Programs, tmp_path: Path
) -> None:
    """Torch itself would wait for ever for the file ``lock`` that the killed one left."""
    variables = {"LOCKCACHE_LEASE_TIMEOUT": "1h"}
    with building(programs, tmp_path, *words) as builder, programs.started(2, *words, **variables) as waiting:
        for process in waiting:
            tell(process, [0])
        builder.kill()
        builder.wait()
        answers = [answer(process) for process in waiting]
    assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * 2
    assert total(answers, "compiled") == 1


def test_what_a_killed_builder_left_goes_with_the_next_build(programs: Programs, tmp_path: Path) -> None:
    with building(programs, tmp_path, "one-folder") as builder:
        builder.kill()
        builder.wait()
    folder = tmp_path / "own" / "extension0"
    [staged] = [path for path in folder.iterdir() if path.is_dir()]
    os.utime(staged, (1, 1))
    [found] = programs.run(1, [0], "one-folder")
    assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, 1)
    assert _files(programs, folder) == ["build.ninja", "extension0.so", "main.cpp"]


def test_the_lock_that_a_killed_torch_left_is_no_obstacle(programs: Programs, tmp_path: Path) -> None:
    with building(programs, tmp_path, "own") as builder:
        builder.kill()
        builder.wait()
    lock = tmp_path / "own" / "extension0" / "lock"
    assert lock.exists()
    # What has no key is built by torch itself, under its lock; the ninja of the killed one ends first.
    for flags in ("", "--save-temps"):
        [found] = programs.run(1, [0], "one-folder", FLAGS=flags)
        assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, 1)
        assert lock.exists() == (not flags or _leaves_lock(programs))


def test_on_another_node_nothing_is_compiled_and_changes_of_sources_and_headers_count(extension: Extension) -> None:
    cold, warm = extension.load("first"), extension.load("second")
    assert (cold["compiled"], cold["value"], warm["compiled"], warm["value"]) == (2, 80, 0, 80)
    assert cold["digest"] == warm["digest"]

    header = extension.headers / "factor.h"
    status = header.stat()
    header.write_text("#define FACTOR 20\n")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = [extension.load("second")]
    (extension.path / "more.cpp").write_text(MORE.replace("1", "2"))
    found.append(extension.load("second"))
    header.write_text("#define FACTOR 10\n")
    (extension.path / "more.cpp").write_text(MORE)
    found.append(extension.load("second"))
    assert [(each["value"], each["compiled"]) for each in found] == [(160, 2), (180, 2), (80, 0)]


def test_in_another_checkout_it_is_found_unless_paths_are_in_it(
    extension: Extension, programs: Programs, tmp_path: Path
) -> None:
    other = Extension(programs, tmp_path / "other")
    for flags, compiled in (("-O1", 0), ("-O1 -g", 2)):
        assert extension.load("first", f"flags={flags}")["compiled"] == 2
        assert other.load("first", f"flags={flags}")["compiled"] == compiled


def test_a_static_library_counts_by_its_bytes(extension: Extension) -> None:
    def archive(value: int) -> None:
        for name in ("added.o", "libadded.a"):
            (extension.path / name).unlink(missing_ok=True)
        (extension.path / "added.c").write_text(f"long added(void) {{ return {value}; }}\n")
        subprocess.run(["gcc", "-fPIC", "-c", "added.c"], cwd=extension.path, check=True)
        subprocess.run(["ar", "rcD", "libadded.a", "added.o"], cwd=extension.path, check=True)

    (extension.path / "more.cpp").write_text('extern "C" long added(); long more(long x) { return x + added(); }\n')
    ldflags = f"ldflags=-L{extension.path} -ladded"
    for value in (1, 2, 1):
        archive(value)
        assert extension.load("node", ldflags)["value"] == (7 + value) * 10
    assert extension.load("another", ldflags)["compiled"] == 0


def test_operators_and_programs_are_shared_too(extension: Extension) -> None:
    (extension.path / "program.cpp").write_text("int main() { return 7; }\n")
    (extension.path / "operators.cpp").write_text("int nothing;\n")
    for node, compiled in (("first", 1), ("second", 0)):
        found = extension.load(node, f"sources={extension.path}/program.cpp", "program", "name=tool")
        assert (found["value"], found["compiled"]) == (7, compiled)
        found = extension.load(node, f"sources={extension.path}/operators.cpp", "operators", "name=operators")
        assert found["compiled"] == compiled


@pytest.mark.parametrize("flags", ["--save-temps", "-include=relative.h -I.", "-DNAME=$$(echo 7)"])
def test_what_has_no_key_is_built_by_torch_with_one_line(flags: str, programs: Programs, extension: Extension) -> None:
    for node in ("first", "second"):
        found = extension.load(node, f"flags={flags.replace('-include=relative.h ', '')}")
        assert (found["value"], found["compiled"]) == (80, 2)
        assert extension.errors.count("keeps in its own cache what lockcache cannot share") == 1
        assert (extension.path / node / "loaded" / "lock").exists() == _leaves_lock(programs)


def test_without_lockcache_torch_takes_no_library_of_lockcache_for_its_own(extension: Extension) -> None:
    """Ninja compares times: a library that is newer than its objects would be right."""
    (extension.path / "more.cpp").write_text("long more(long x) { return x + ADDED; }\n")
    one, two = "flags=-O1 -DADDED=1", "flags=-O1 -DADDED=2"
    off = {"LOCKCACHE_DISABLE": "1"}
    assert extension.load("node", one, **off)["value"] == 80
    assert extension.load("node", two)["value"] == 90
    assert extension.load("node", one, **off)["value"] == 80


def test_an_extension_with_torchs_headers_is_found_on_another_node_and_no_header_is_precompiled(
    extension: Extension, programs: Programs
) -> None:
    [torch] = (programs.python.parents[1] / "lib").glob("python*/site-packages/torch")
    precompiled = torch / "include/torch/extension.h.gch"
    words = ("inline", "pch")
    assert extension.call("first", *words)["compiled"] >= 1
    precompiled.unlink(missing_ok=True)
    found = extension.call("second", *words)
    assert (found["value"], found["compiled"]) == (49, 0)
    assert not precompiled.exists()


def test_cuda_sources_are_compiled_once(extension: Extension, tmp_path: Path) -> None:
    """With a real nvcc, for torch's CPU, whose libraries for CUDA are empty here."""
    nvcc = shutil.which("nvcc") or pytest.skip("needs nvcc")
    said = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False).stderr
    toolkit = next((line.partition("TOP=")[2] for line in said.splitlines() if "TOP=" in line), "")
    if not os.path.isfile(f"{toolkit}/include/cuda_runtime.h"):
        pytest.skip("needs the headers of CUDA")
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    names = ("RegisterFatBinary", "RegisterFatBinaryEnd", "UnregisterFatBinary", "RegisterVar", "InitModule")
    stand_in = "".join(f"void *__cuda{name}(void) {{ return (void *)1; }}\n" for name in names)
    for name in ("c10_cuda", "torch_cuda", "cudart"):
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", libraries / f"lib{name}.so"]
        subprocess.run(command, input=stand_in if name == "cudart" else "", text=True, check=True)
    (extension.path / "kernel.cu").write_text(
        '__device__ int value;\nextern "C" __attribute__((visibility("default"))) long more_of(long x) '
        "{ return x + 1; }\n"
    )
    words = (
        f"sources={extension.path}/kernel.cu",
        f"cuda={os.path.realpath(toolkit)}",
        f"ldflags=-L{libraries}",
        "operators",
    )
    variables = {"TORCH_CUDA_ARCH_LIST": "9.0", "LD_LIBRARY_PATH": str(libraries)}
    first, second = (extension.load(node, *words, **variables) for node in ("first", "second"))
    assert first["digest"] == second["digest"]
    assert (extension.path / "second/loaded/loaded.so").stat().st_mtime == 1, "ninja did not make it"
    assert "cannot share" not in extension.errors
