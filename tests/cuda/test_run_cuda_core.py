# SPDX-License-Identifier: Apache-2.0
"""Programs of cuda.core under ``lockcache run``: ``Program.compile`` gets a cache, and nothing else is new to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.cli.command import run

pytestmark = pytest.mark.cuda

# Prints whatever a program can see of a compilation.
PROGRAM = """
import io, pickle, sys
import cuda.core
from cuda.core import Program, ProgramOptions

def compile_one(source, *names, **options):
    program = Program(source, "c++", ProgramOptions(arch="sm_90", **options))
    log = io.StringIO()
    try:
        code = program.compile("cubin", name_expressions=names, logs=log)
        return type(code).__name__, code.code_type, hash_of(code.code), sorted(code.symbol_mapping), log.getvalue()
    except Exception as error:
        return type(error).__module__, type(error).__name__, str(error)
    finally:
        program.close()

def hash_of(code):
    import hashlib
    return hashlib.sha256(code).hexdigest()

print(Program.__name__, Program.__module__, Program is cuda.core.Program)
print(compile_one("template <typename T> __global__ void scale(T *x, T a) { x[threadIdx.x] *= a; }", "scale<float>"))
print(compile_one("__global__ void broken("))
print(compile_one("__global__ void warns(int *x) { int unused; x[0] = 1; }"))
print(compile_one('#include "missing.h"'))
for wrong in (dict(code="x", code_type="fortran"), dict(code=1, code_type="c++")):
    try:
        Program(**wrong)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_results_and_errors_are_those_of_cuda_core_and_the_second_run_compiles_nothing(
    program: Path, cache_path: Path
) -> None:
    plain = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    first = run("run", "--dir", cache_path, "--", sys.executable, program)
    second = run("run", "--dir", cache_path, "--", sys.executable, program)
    assert (first.stdout, second.stdout) == (plain, plain)
    assert "0 found, 2 compiled" in first.stderr
    assert "2 found, 0 compiled" in second.stderr


def test_a_cache_that_the_program_gives_is_the_one_that_is_used(cache_path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import lockcache.cuda, cuda.core
from lockcache import FileStreamProgramCache
assert issubclass(cuda.core.Program, lockcache.cuda.Program) and lockcache.cuda.Program is not cuda.core.Program
with FileStreamProgramCache({str(tmp_path / "own")!r}) as cache:
    for made in (cuda.core.Program, lockcache.cuda.Program):
        made("__global__ void k() {{}}", "c++", cuda.core.ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
    assert (cache.stats().puts, cache.stats().hits) == (1, 1)
""")
    ended = run("run", "--dir", cache_path, "--", sys.executable, program)
    assert ended.returncode == 0, ended.stderr
    assert len(FileStreamProgramCache(cache_path)) == 0


def test_of_processes_that_start_together_one_compiles_each_program(cache_path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import subprocess, sys
if sys.argv[1:]:
    from cuda.core import Program, ProgramOptions
    for number in range(2):
        source = f"__global__ void k{number}(int *x) {{ x[0] = {number}; }}"
        assert Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin").code
else:
    children = [subprocess.Popen([sys.executable, __file__, "child"]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
""")
    ended = run("run", "--dir", cache_path, "--", sys.executable, program)
    assert ended.returncode == 0, ended.stderr
    assert "3 processes: 4 found, 2 compiled" in ended.stderr


def test_a_command_without_any_compilation_says_that_nothing_used_lockcache(cache_path: Path) -> None:
    said = run("run", "--dir", cache_path, "--", sys.executable, "-c", "import cuda.core").stderr
    assert "nothing was found or compiled here, by cuda.core.Program or a framework" in said
