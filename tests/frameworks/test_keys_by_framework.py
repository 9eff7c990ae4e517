# SPDX-License-Identifier: Apache-2.0
"""Cells of the guide's table of keys that one framework alone has: toolchains, variables, line information."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.keys_project import RIGHT, Project, in_checkout
from tests.frameworks.support import Programs, site_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

WARPS = ("warp", "warp-oldest")


def _assert_told_apart(project: Project, change: Callable[[Project], None], **variables: str) -> None:
    """Assert that a process compiles after a change, and that the next one finds what it compiled."""
    assert project.compile(**project.elsewhere("a"), **variables)["compiled"] == 1
    change(project)
    assert project.compile(**project.elsewhere("b"), **variables)["compiled"] == 1
    assert project.compile(**project.elsewhere("c"), **variables)["compiled"] == 0


def _use_a_snippet(project: Project) -> None:
    text = (project.root / "helper.py").read_text()
    snippet = '@wp.func_native("return x + 5001;")\ndef scaled(x: int) -> int: ...\n'
    project.write("helper.py", text[: text.index("@wp.func")] + snippet)


@pytest.mark.parametrize("venv", WARPS)
@pytest.mark.parametrize("change", [("first: wp.int32", "first: wp.int64"), ("second: wp", "third: wp")])
def test_a_structure_is_in_warps_key(venv: str, change: tuple[str, str], tmp_path: Path) -> None:
    _assert_told_apart(Project(venv, tmp_path), lambda project: project.replace(*change))


@pytest.mark.parametrize("venv", WARPS)
def test_a_native_snippet_is_in_warps_key(venv: str, tmp_path: Path) -> None:
    project = Project(venv, tmp_path)
    _use_a_snippet(project)
    _assert_told_apart(project, lambda project: project.replace("x + 5001", "x + 6001"))
    assert project.compile()["numbers"] == [3001, 6001, 7001]


@pytest.mark.parametrize("venv", WARPS)
def test_a_warp_module_for_a_cpu_with_other_instructions_is_another(venv: str, tmp_path: Path) -> None:
    project = Project(venv, tmp_path)
    _assert_told_apart(project, Project.pretend_another_cpu)


def test_folders_of_headers_keep_a_warp_module_in_its_own_cache(tmp_path: Path) -> None:
    project = Project("warp", tmp_path)
    project.write("inc/x.h", "\n")
    options = f'{{"extra_build_options": wp.ModuleBuildOptions(extra_cpu_include_dirs=["{project.root}/inc"])}}'
    project.replace('{"fast_math": False}', options)
    assert project.compile(**project.elsewhere("a")) == {"compiled": 1, "numbers": RIGHT}
    assert "the headers that a module's options name are not in its key" in project.said
    assert project.compile(**project.elsewhere("b"))["compiled"] == 1


LINES = {"line information": '{"lineinfo": True}', "debug mode": '{"mode": "debug"}'}


@pytest.mark.parametrize("venv", WARPS)
@pytest.mark.parametrize("lines", LINES)
def test_with_line_information_the_places_of_functions_are_in_warps_key(venv: str, lines: str, tmp_path: Path) -> None:
    project = Project(venv, tmp_path)
    project.replace('{"fast_math": False}', LINES[lines])
    _assert_told_apart(project, lambda project: project.replace("@wp.func", "\n@wp.func"))
    project.move()
    assert project.compile(**project.elsewhere("d"))["compiled"] == 1


def test_a_variable_of_the_compiler_in_warp_changes_its_output_and_its_key(tmp_path: Path) -> None:
    """Of a module for a GPU, compiled without one."""
    project = Project("warp", tmp_path)
    found = [
        (project.compile("cuda", **variables)["compiled"], project.digest)
        for variables in ({}, {"NV_NVVM_VERSION": "nvvm-latest"}, {})
    ]
    assert [compiled for compiled, _ in found] == [1, 1, 0]
    assert found[0][1] == found[2][1] != found[1][1]


def _another_cuda_architecture(project: Project) -> dict[str, str]:
    return {"COMPUTE_CAPABILITY": "8 0"}


def _another_compiler_of_numba(project: Project) -> dict[str, str]:
    project.pretend("lockcache.keys.versions", "compilers_of_numba", "lambda: 'other'")
    return {}


@pytest.mark.parametrize("change", [_another_cuda_architecture, _another_compiler_of_numba])
def test_the_gpu_and_the_builds_of_compilers_are_in_numbas_key(
    change: Callable[[Project], dict[str, str]], tmp_path: Path
) -> None:
    project = Project("numba", tmp_path)
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    variables = change(project)
    assert project.compile(**project.elsewhere("b"), **variables)["compiled"] == 1
    assert project.compile(**project.elsewhere("c"), **variables)["compiled"] == 0


@pytest.mark.parametrize("framework", ["numba", "numba_mlir"])
@pytest.mark.parametrize("option", ["lineinfo", "debug"])
def test_with_line_information_another_checkout_compiles_again(framework: str, option: str, tmp_path: Path) -> None:
    project = Project(framework, tmp_path)
    project.replace("fastmath=helper.FAST", f"{option}=True, opt={option == 'lineinfo'}")
    _assert_told_apart(project, Project.move)


def _change_a_file_of_triton(project: Project) -> dict[str, str]:
    site = Path(site_of("triton"))
    copy = project.root.with_name("site") / "triton"
    shutil.copytree(site / "triton", copy, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "language/standard.py"
    text = file.read_text()
    file.unlink()
    file.write_text(f"{text}\n# changed\n")
    project.path = f"{copy.parent}{os.pathsep}{project.path}"
    return {}


def _take_another_ptxas(project: Project) -> dict[str, str]:
    [ptxas] = (Path(site_of("triton")) / "triton/backends/nvidia/bin").glob("ptxas")
    wrapper = project.root.with_name("ptxas")
    wrapper.write_text(f'#!/bin/sh\n{ptxas} "$@" || exit\n[ "$1" = --version ] && echo "Build another"; exit 0\n')
    wrapper.chmod(0o755)
    return dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(wrapper))


@pytest.mark.parametrize("change", [_change_a_file_of_triton, _take_another_ptxas])
def test_tritons_files_and_the_build_of_ptxas_are_in_its_key(
    change: Callable[[Project], dict[str, str]], tmp_path: Path
) -> None:
    project = Project("triton", tmp_path)
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    variables = change(project)
    assert project.compile(**project.elsewhere("b"), **variables)["compiled"] == 1
    assert project.compile(**project.elsewhere("c"), **variables)["compiled"] == 0


LAUNCHER = """
import sys
from triton.runtime import build, cache
made = []
own = build._build
build._build = lambda *args, **options: made.append(1) or own(*args, **options)
from lockcache.integrations.triton import install
assert install()
build.compile_module_from_src(sys.argv[1], "launcher", include_dirs=sys.argv[2:])
print(len(made))
"""
SOURCE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", "", -1, 0};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
"""


def test_the_compiler_and_the_folders_of_headers_are_in_the_keys_of_tritons_launchers(tmp_path: Path) -> None:
    programs = Programs("triton", tmp_path)
    compilers = [compiler for compiler in ("gcc", "cc") if shutil.which(compiler)]
    asked = [(["/one"], compilers[0]), (["/one"], compilers[0]), (["/other"], compilers[0]), (["/one"], compilers[-1])]
    said = [programs.call("-c", LAUNCHER, SOURCE, *folders, CC=compiler) for folders, compiler in asked]
    assert said == ["1\n", "0\n", "1\n", f"{int(len(compilers) == 2)}\n"]


def test_how_many_devices_a_jax_program_is_for_is_in_its_key(tmp_path: Path) -> None:
    project = Project("jax", tmp_path)
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    variables = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert project.compile("two-devices", **project.elsewhere("b"), **variables)["compiled"] >= 1
    assert project.compile("two-devices", **project.elsewhere("c"), **variables)["compiled"] == 0


def test_cutes_places_stay_where_line_information_is_asked_for(tmp_path: Path) -> None:
    programs = Programs("cute", tmp_path)
    for checkout, compiled in (("one", 2), ("one", 0), ("other", 2)):
        assert in_checkout(programs, tmp_path / checkout, CUTE_DSL_LINEINFO="1")["compiled"] == compiled


HELION = """
import dataclasses, json
from importlib import metadata
from helion.autotuner import remote_cache
from helion.autotuner.base_cache import LooseAutotuneCacheKey, StrictAutotuneCacheKey
from lockcache.integrations import helion

version = metadata.version
metadata.version = lambda name: f"{version(name)}{sys.argv[2] if name == sys.argv[1] else ''}"
assert helion.install()
one = LooseAutotuneCacheKey(((4, 4), "cuda"), (), "5f", "H100", "13.0", "triton")
changes = {"specialization_key": ((8, 4), "cuda"), "kernel_source_hash": "60", "hardware": "B200", "backend": "cute"}
keys = [one, *(dataclasses.replace(one, **{name: value}) for name, value in changes.items())]
tuned = 0
for key in keys:
    back_end = helion.Backend()
    if back_end.get(key.stable_hash()) is None:
        tuned += 1
        back_end.put(key.stable_hash(), "{}")
print(tuned)
"""


def test_kernel_shapes_types_and_device_and_the_versions_of_all_are_in_helions_key(tmp_path: Path) -> None:
    programs = Programs("helion", tmp_path)

    def tuned(package: str, suffix: str) -> int:
        return int(programs.call("-c", f"import sys\n{HELION}", package, suffix).splitlines()[-1])

    assert tuned("", "") == 5
    assert tuned("", "") == 0
    for package in ("helion", "torch", "triton"):
        assert tuned(package, "+other") == 5


CUTILE = """
import json, sys
from cuda.tile import _compile
from lockcache.integrations import cutile

assert cutile.install()
given = {"compiler_version": "13.1", "sm_arch": "sm_90", "opt_level": 3, "bytecode": b"code"}
changes = {"compiler_version": "13.2", "sm_arch": "sm_100", "opt_level": 2, "bytecode": b"other"}
libraries = [{"linker_inputs": ((path, "1.2"),)} for path in sys.argv[1:]]
asked = [{}, *({name: value} for name, value in changes.items()), *libraries]
print(json.dumps([_compile.cache_key(**{**given, **each}) for each in asked]))
"""


def test_bytecode_target_level_version_and_the_bytes_of_libraries_are_in_cutiles_key_and_no_path(
    tmp_path: Path,
) -> None:
    programs = Programs("cutile", tmp_path)
    paths = [tmp_path / name for name in ("library.bc", "moved.bc", "another.bc")]
    for path in paths:
        path.write_text("another" if path.stem == "another" else "code")
    *keys, library, moved, another = json.loads(programs.call("-c", CUTILE, *map(str, paths)))
    assert len({*keys, library, another}) == len(keys) + 2
    assert library == moved
