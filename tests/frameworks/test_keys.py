# SPDX-License-Identifier: Apache-2.0
"""The keys of frameworks, in a directory that others share: what they have, what they lack, what is private in them.

The same questions for each framework: a project is compiled, something changes, and another process compiles. Either it
gets what is right for it by compiling, or it finds what was compiled. ``docs/guides/frameworks.md`` has the answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.keys_project import RIGHT, Project
from tests.frameworks.projects import PROJECTS
from tests.frameworks.support import OLDER, Programs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FRAMEWORKS = ("cupy", "numba", "numba_mlir", "warp", "triton", "jax")


@pytest.fixture(params=[*FRAMEWORKS, *OLDER])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return Project(request.param, tmp_path)


CHANGES: dict[str, tuple[str, str, list[int]]] = {
    "a constant": ("3001", "4001", [4001, 5001, 7001]),
    "a device function of another module": ("5001", "6001", [3001, 6001, 7001]),
    "a constant of another module": ("7001", "8001", [3001, 5001, 8001]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_program_says_is_told_apart_though_times_and_sizes_are_equal(project: Project, change: str) -> None:
    old, new, right = CHANGES[change]
    assert project.compile(**project.elsewhere("a")) == {"compiled": 1, "numbers": project.wants(*RIGHT)}
    project.replace(old, new)
    assert project.compile(**project.elsewhere("b")) == {"compiled": 1, "numbers": project.wants(*right)}


OPTIONS = {
    "cupy": ("-Iinc", "-Iinc -DUNUSED"),
    "numba": ("FAST = False", "FAST = True "),
    "numba_mlir": ("FAST = False", "FAST = True "),
    "triton": ('"num_warps": 4', '"num_warps": 8'),
    "warp": ('"fast_math": False', '"fast_math": True '),
    "jax": ("= {}", '= {"xla_cpu_enable_fast_math": True}'),
}
ENVIRONMENT = {
    "cupy": {"CUPY_CUDA_COMPILE_WITH_DEBUG": "1"},
    "numba": {"NUMBA_OPT": "1"},
    "numba_mlir": {"NUMBA_OPT": "1"},
    "triton": {"TRITON_DISABLE_LINE_INFO": "1"},
    "jax": {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"},
}


@pytest.mark.parametrize("framework", OPTIONS)
def test_options_are_told_apart(framework: str, tmp_path: Path) -> None:
    project = Project(framework, tmp_path)
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    project.replace(*OPTIONS[framework])
    assert project.compile(**project.elsewhere("b"))["compiled"] == 1
    assert project.compile(**project.elsewhere("c"))["compiled"] == 0


@pytest.mark.parametrize("framework", ENVIRONMENT)
def test_variables_that_change_the_output_are_told_apart(framework: str, tmp_path: Path) -> None:
    project = Project(framework, tmp_path)
    variables = ENVIRONMENT[framework]
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    assert project.compile(**project.elsewhere("b"), **variables)["compiled"] == 1
    assert project.compile(**project.elsewhere("c"), **variables)["compiled"] == 0


_GENERATOR = {"NV_NVVM_VERSION": "nvvm-latest"}
LATE = [
    # Not those whose outputs have names or times of their making.
    *(each for each in ENVIRONMENT.items() if each[0] not in ("jax", "cupy")),
    *((framework, _GENERATOR) for framework in ("cupy", "numba", "numba_mlir", "triton", "warp")),
]


@pytest.mark.parametrize("framework, variables", LATE, ids=str)
def test_a_variable_that_is_set_late_gives_nobody_the_output_of_another_value(
    framework: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """Read at the import of the framework, at the load of a compiler, or at each compilation."""
    project, compiling = Project(framework, tmp_path), "cuda" if framework == "warp" else "compile"
    if framework == "triton":
        helper = (project.root / "helper.py").read_text()
        project.write("helper.py", f"{helper}@triton.jit\ndef other(p):\n    tl.store(p, 1)\n")

    def digest(**given: str) -> str:
        project.compile(compiling, **given)
        return project.digest

    [(name, value)] = variables.items()
    project.compile("load", f"set {name}={value}", compiling)
    found = digest(), digest(**variables)
    project.programs.directory = tmp_path / "another"
    assert found == (digest(), digest(**variables))


def test_flags_that_xla_has_read_already_give_nobody_the_output_of_others(tmp_path: Path) -> None:
    """XLA reads its flags once; JAX's keys have them as they were then, and as they are."""
    project = Project("jax", tmp_path)
    [(name, value)] = ENVIRONMENT["jax"].items()
    assert project.compile("load", f"set {name}={value}", "compile")["compiled"] == 1
    assert project.compile()["compiled"] == 1
    assert project.compile(**{name: value})["compiled"] == 1


def _with_all_moved(project: Project) -> None:
    project.programs.directory = project.programs.directory.rename(project.root.parent / "moved")


def _at_another_time(project: Project) -> None:
    for path in project.root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


PLACES: dict[str, Callable[[Project], None]] = {
    "another directory of its own": lambda project: None,
    "another checkout": Project.move,
    "another time": _at_another_time,
    "another path of all that is shared": _with_all_moved,
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_private_keeps_nobody_from_sharing(project: Project, place: str) -> None:
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    PLACES[place](project)
    home = str(project.root.parent / "another-home")
    found = project.compile(**project.elsewhere("b"), HOME=home)
    assert found == {"compiled": 0, "numbers": project.wants(*RIGHT)}


def test_kernels_have_their_names(project: Project) -> None:
    project.compile()
    command = [sys.executable, "-m", "lockcache", "ls", "--json", project.programs.directory]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert any("kernel" in json.loads(line)["label"] for line in said.splitlines()), said


#: The commands of a program that clears and compiles. Clearing a kernel of numba-cuda's compiles it again.
CLEARING = {
    "numba": ("compile", "clear"),
    "numba_mlir": ("compile", "clear", "compile"),
    "warp": ("clear", "compile", "compile"),
}


@pytest.mark.parametrize("framework", CLEARING)
def test_a_programs_own_command_to_clear_has_it_compile_again_and_replace_the_entry(
    framework: str, tmp_path: Path
) -> None:
    project = Project(framework, tmp_path)
    commands = CLEARING[framework]
    assert project.compile()["compiled"] == 1
    assert project.compile()["compiled"] == 0
    [before] = [path.stat().st_ino for path in (project.programs.directory / "entries").glob("??/*")]
    assert project.compile(*commands)["compiled"] == 1
    [after] = [path.stat().st_ino for path in (project.programs.directory / "entries").glob("??/*")]
    assert before != after
    assert project.compile(**project.elsewhere("b")) == {"compiled": 0, "numbers": project.wants(*RIGHT)}


def _include_in_options(project: Project) -> None:
    project.write("inc/first.h", "\n")
    project.replace("-Iinc", "-Iinc --pre-include=first.h")


def _include_in_a_native_snippet(project: Project) -> None:
    project.write("x.h", "return x + 5001;\n")
    snippet = f'@wp.func_native("\\n#include \\"{project.root}/x.h\\"\\n")\ndef scaled(x: int) -> int: ...\n'
    text = (project.root / "helper.py").read_text()
    project.write("helper.py", text[: text.index("@wp.func")] + snippet)


#: What makes a key incomplete, as far as lockcache sees it.
UNKEYED: dict[str, Callable[[Project], None]] = {
    "cupy": _include_in_options,
    "numba": lambda project: project.replace("fastmath=helper.FAST", "fastmath=helper.FAST, extensions=[helper]"),
    "numba_mlir": lambda project: project.replace(
        "import helper\n", "import helper\nfrom numba_cuda_mlir.cuda.experimental import consteval\n"
    ),
    "warp": _include_in_a_native_snippet,
}


@pytest.mark.parametrize("framework", UNKEYED)
def test_what_cannot_be_keyed_stays_in_the_frameworks_own_cache(framework: str, tmp_path: Path) -> None:
    project = Project(framework, tmp_path)
    UNKEYED[framework](project)
    assert project.compile(**project.elsewhere("a")) == {"compiled": 1, "numbers": project.wants(*RIGHT)}
    assert "in its own cache what lockcache cannot share" in project.said
    assert project.compile(**project.elsewhere("a"), LOCKCACHE_SEALED="warn")["compiled"] == 0
    assert "compiled while sealed" not in project.said
    project.replace("5001", "6001")
    found = project.compile(**project.elsewhere("b"), LOCKCACHE_SEALED="warn")
    assert found == {"compiled": 1, "numbers": project.wants(3001, 6001, 7001)}
    assert project.said.count("compiled while sealed") == 1
    assert [*(project.programs.directory / "entries").glob("??/*")] == []


#: Constants that a kernel of Triton takes from elsewhere: what stands for ``helper.OTHER`` in it, and in the helper.
TRITON_CONSTANTS = {
    "of a class above": ("helper.C.A", "class B:\n    A = tl.constexpr(7001)\nclass C(B):\n    pass\n"),
    "of an object": ("helper.c.A", "import types\nc = types.SimpleNamespace(A=7001)\n"),
    "that a module makes": (
        "helper.A",
        "def __getattr__(name):\n    if name == 'A':\n        return 7001\n    raise AttributeError\n",
    ),
    "asked for by its name": ("getattr(helper, 'A')", "A = tl.constexpr(7001)\n"),
    "as a default": ("helper.f(0)", "A = 7001\n@triton.jit\ndef f(x, a: tl.constexpr = A):\n    return x + a\n"),
    "read by Python": ("helper.f()", "A = 7001\n@triton.constexpr_function\ndef f():\n    return A\n"),
    "of another type": ("7001 if helper.A == 1 else 8001", "A = tl.constexpr(1)    # '1'\n"),
    "of a module named like one of Python's": ("wave.A", ""),
}


@pytest.mark.parametrize("kind", TRITON_CONSTANTS)
def test_constants_from_elsewhere_are_in_tritons_key(kind: str, tmp_path: Path) -> None:
    project = Project("triton", tmp_path)
    name, text = TRITON_CONSTANTS[kind]
    project.write("wave.py", "import triton.language as tl\nA = tl.constexpr(7001)\n" if "wave" in name else "")
    kernel = (project.root / "kernel.py").read_text()
    project.write("kernel.py", kernel.replace("helper.OTHER", name).replace("import helper", "import helper, wave"))
    helper = (project.root / "helper.py").read_text()
    project.write("helper.py", helper.replace("OTHER = tl.constexpr(7001)\n", text))
    assert project.compile(**project.elsewhere("a")) == {"compiled": 1, "numbers": project.wants(*RIGHT)}
    assert project.compile(**project.elsewhere("b"))["compiled"] == 0
    project.replace(*(("(1)    # '1'", "('1')  #  1 ") if "type" in kind else ("7001", "8001")))
    found = project.compile(**project.elsewhere("c"))
    assert found == {"compiled": 1, "numbers": project.wants(3001, 5001, 8001)}


def test_triton_compiles_always_if_its_variable_says_so_and_replaces_the_entry(tmp_path: Path) -> None:
    project = Project("triton", tmp_path)
    assert project.compile()["compiled"] == 1
    assert project.compile(TRITON_ALWAYS_COMPILE="1")["compiled"] == 1
    assert project.compile(**project.elsewhere("b")) == {"compiled": 0, "numbers": project.wants(*RIGHT)}


LIBRARY = """
import os, sys
own = os.confstr
os.confstr = lambda name: sys.argv[1] if name == "CS_GNU_LIBC_VERSION" else own(name)
from triton.runtime.cache import get_cache_manager
found = get_cache_manager("cd" * 32).get_file("launcher.so")
print(found and open(found).read())
if not found:
    get_cache_manager("cd" * 32).put(sys.argv[1], "launcher.so", binary=False)
"""


def test_a_launcher_for_another_c_library_is_another_launcher(tmp_path: Path) -> None:
    programs = Programs("triton", tmp_path)
    variable = {"TRITON_CACHE_MANAGER": "lockcache.integrations.triton:LockcacheManager"}
    said = [programs.call("-c", LIBRARY, version, **variable) for version in ("glibc 2.39", "glibc 2.31", "glibc 2.39")]
    assert said == ["None\n", "None\n", "glibc 2.39\n"]


def test_a_header_that_lies_next_to_a_header_is_in_cupys_key(tmp_path: Path) -> None:
    project = Project("cupy", tmp_path)
    scale = (project.root / "inc/scale.h").read_text()
    project.write("inc/parts/scale.h", scale)
    project.write("inc/parts/all.h", '#include "scale.h"\n')
    project.write("inc/scale.h", '#include "parts/all.h"\n')
    assert project.compile(**project.elsewhere("a")) == {"compiled": 1, "numbers": project.wants(*RIGHT)}
    project.replace("5001", "6001")
    found = project.compile(**project.elsewhere("b"))
    assert found == {"compiled": 1, "numbers": project.wants(3001, 6001, 7001)}


def test_cupy_writes_sources_for_profilers_on_a_hit_too(tmp_path: Path) -> None:
    project = Project("cupy", tmp_path)
    for own, compiled in (("a", 1), ("b", 0)):
        variables = {**project.elsewhere(own), "CUPY_CACHE_SAVE_CUDA_SOURCE": "1"}
        assert project.compile(**variables)["compiled"] == compiled
        [source] = (tmp_path / own).glob("*.cu")
        assert source.read_text() == PROJECTS["cupy"]["kernel.cu"]


def test_a_jax_program_for_a_cpu_with_other_instructions_is_another_program(tmp_path: Path) -> None:
    project = Project("jax", tmp_path)
    assert project.compile(**project.elsewhere("a"))["compiled"] == 1
    project.pretend_another_cpu()
    assert project.compile(**project.elsewhere("b"))["compiled"] == 1
    assert project.compile(**project.elsewhere("c"))["compiled"] == 0
