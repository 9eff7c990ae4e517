# SPDX-License-Identifier: Apache-2.0
"""The first hit of a process: what it does not load, and that it is the hit that a compilation would have been."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.core")

from tests.cuda.programs import PLAIN
from tests.matrix_sampling import all_but

pytestmark = [pytest.mark.cuda, pytest.mark.slow]

# What each program of these tests begins with. A site directory of its own, if it is given one, comes first.
BEGIN = """
import json, os, site, sys
cache_path, first_site = sys.argv[1:3]
real = site.getsitepackages
site.getsitepackages = lambda: [*([first_site] if first_site else []), *real()]
headers = []
is_header = lambda event, given: event == "open" and str(given[0]).endswith((".h", ".h'"))
sys.addaudithook(lambda event, given: headers.append(given[0]) if is_header(event, given) else None)
from cuda.core import ProgramOptions
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
from lockcache.keys import versions

def has_loaded():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libnvrtc.so" in line})

def compile(code, **options):
    return bytes(Program(code, "c++", ProgramOptions(arch="sm_90", **options)).compile("cubin", cache=cache).code)

cache = FileStreamProgramCache(cache_path)
"""
END = """
stats = cache.stats()
print(json.dumps([stats.hits, stats.misses, stats.uncacheable, has_loaded(), len(headers)]))
"""


def run(cache_path: Path, program: str, first_site: Path | str = "", **variables: str) -> Any:
    """Run it in a process of its own. Returns hits, misses, what was not stored, loaded NVRTCs, and headers opened."""
    given = {**os.environ, **variables}
    command = [sys.executable, "-c", BEGIN + program + END, str(cache_path), str(first_site)]
    ran = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def include_path() -> list[str]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        include = Path(root) / "cu13" / "include"
        if (include / "cuda_fp16.h").exists() and (include / "cccl").exists():
            return [str(include), str(include / "cccl")]
    pytest.skip("needs the wheels nvidia-cuda-runtime and nvidia-cuda-cccl")


def another_nvrtc(tmp_path: Path, more: bytes) -> Path:
    """Returns a site directory with a copy of NVRTC of another build. What follows an ELF file is not loaded."""
    spec = importlib.util.find_spec("nvidia")
    assert spec is not None
    [library] = [
        path for root in spec.submodule_search_locations or [] for path in Path(root).glob("cu13/lib/libnvrtc.so.13")
    ]
    folder = tmp_path / "site" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    for path in library.parent.glob("libnvrtc*"):
        (folder / path.name).symlink_to(path)
    (folder / library.name).unlink()
    shutil.copy(library, folder)
    with (folder / library.name).open("ab") as file:
        file.write(more)
    return tmp_path / "site"


@pytest.mark.parametrize("has_headers", all_but([True], [False, True]))
def test_a_process_whose_look_ups_hit_loads_no_compiler_and_opens_no_header(
    cache_path: Path, has_headers: bool
) -> None:
    code = f"#include <cuda_fp16.h>\n{PLAIN}" if has_headers else PLAIN
    program = f"compile({code!r}, include_path={include_path() if has_headers else None!r})"
    first = run(cache_path, program)
    assert (first[:2], first[-1] > 0) == ([0, 1], has_headers)
    hits, misses, _, loaded, headers = run(cache_path, program)
    assert (hits, misses, loaded, headers) == (1, 0, [], 0)


@pytest.mark.parametrize("option", all_but(["lineinfo"], ["lineinfo", "debug"]))
def test_a_source_that_cuda_core_writes_to_another_directory_is_another_program(
    cache_path: Path, tmp_path: Path, option: str
) -> None:
    # The directory is in __FILE__, in assertions and in the line table.
    code = f"{PLAIN} __device__ char size[sizeof(__FILE__)];"
    program = f"""
measured = compile({code!r}, {option}=True).hex()
here = os.environ["TMPDIR"].encode().hex()
assert here in measured, "the output names it"
"""
    for name in ("short", "a-longer-one"):
        (tmp_path / name).mkdir()
        first, second = (run(cache_path, program, TMPDIR=str(tmp_path / name)) for _ in range(2))
        assert first[:2] == [0, 1]
        assert second[:4] == [1, 0, 0, []], "and a hit loads no compiler"
    assert not [*tmp_path.glob("*/*.cu")]


def test_the_version_found_is_the_version_loaded(cache_path: Path) -> None:
    run(cache_path, "found = versions.nvrtc(); assert not has_loaded(); assert found == versions.load_nvrtc()")


def test_where_nothing_is_found_it_is_loaded(cache_path: Path) -> None:
    hidden = "from cuda.pathfinder._dynamic_libs import search_steps; search_steps.EARLY_FIND_STEPS = ()\n"
    program = f"compile({PLAIN!r})"
    assert run(cache_path, program)[:2] == [0, 1]
    hits, _, _, loaded, _ = run(cache_path, hidden + program)
    assert (hits, len(loaded)) == (1, 1)


def test_another_nvrtc_has_other_keys_also_one_that_was_replaced_in_place(cache_path: Path, tmp_path: Path) -> None:
    program, site = f"compile({PLAIN!r})", another_nvrtc(tmp_path, b"one")
    assert run(cache_path, program)[:2] == [0, 1]
    hits, misses, _, loaded, _ = run(cache_path, program, site)
    assert (hits, misses) == (0, 1)
    assert loaded == [str(site / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")]
    assert run(cache_path, program, site)[:4] == [1, 0, 0, []]
    with (site / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13").open("ab") as file:
        file.write(b"two")
    assert run(cache_path, program, site)[:2] == [0, 1]
    assert run(cache_path, program)[:2] == [1, 0]


def test_what_another_nvrtc_compiled_than_was_found_is_not_stored(cache_path: Path, tmp_path: Path) -> None:
    site = another_nvrtc(tmp_path, b"another")
    # Another program in the process loads its own.
    load = f"""
import ctypes
assert versions.nvrtc() and not has_loaded()
ctypes.CDLL({str(site / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")!r})
"""
    twice = f"compile({PLAIN!r}); compile({PLAIN!r}); compile({PLAIN!r})"
    hits, misses, uncacheable, loaded, _ = run(cache_path, load + twice)
    assert (hits, misses, uncacheable, len(loaded)) == (1, 2, 1, 1)
    assert run(cache_path, f"compile({PLAIN!r})")[:2] == [0, 1]
    assert run(cache_path, f"compile({PLAIN!r})", site)[:2] == [1, 0]


REPLACE = """
import shutil
library = "{library}"
shutil.copy(library, library + ".new")
with open(library + ".new", "ab") as file:
    file.write(b"two")
os.rename(library + ".new", library)
"""


def test_one_that_is_replaced_before_it_is_loaded_stores_under_the_key_of_the_new_one(
    cache_path: Path, tmp_path: Path
) -> None:
    site = another_nvrtc(tmp_path, b"one")
    replace = REPLACE.format(library=site / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")
    program = f"assert versions.nvrtc() and not has_loaded(){replace}" + 3 * f"compile({PLAIN!r})\n"
    assert run(cache_path, program, site)[:3] == [1, 2, 1]
    assert run(cache_path, f"compile({PLAIN!r})", site)[:2] == [1, 0]


def test_of_one_that_is_replaced_after_it_was_loaded_nothing_is_known(cache_path: Path, tmp_path: Path) -> None:
    site = another_nvrtc(tmp_path, b"one")
    library = site / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    load = f"import ctypes; ctypes.CDLL({str(library)!r})"
    program = f"{load}{REPLACE.format(library=library)}" + 2 * f"compile({PLAIN!r})\n"
    assert run(cache_path, program, site)[:3] == [0, 2, 2]
    assert run(cache_path, f"compile({PLAIN!r})", site)[:2] == [0, 1]


# Everything that a program says of itself, before and after it is closed, and what its constructor refuses.
SAID = """
import json, os, sys
from cuda.core import ProgramOptions
if sys.argv[1] == "lockcache":
    from lockcache.cuda import Program
else:
    from cuda.core import Program

def tried(work):
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(repr(Program), "Program")

def is_loaded():
    with open("/proc/self/maps") as maps:
        return "libnvrtc.so" in maps.read()

def options(**more):
    return ProgramOptions(arch="sm_90", **more)

said = []
plain = 'extern "C" __global__ void k(int *p) { *p = 1; }'
one = Program(plain, "c++", options())
closed = Program(plain, "C++", options())
closed.close()
said += [one.is_closed, closed.is_closed, one.pch_status]
renamed, changing = Program(plain, "c++", changed := options(name="before", lineinfo=None)), options(name="first")
changed.name, changed.max_register_count = "after", 32
late = Program(plain, "c++", changing)
assert sys.argv[1] != "lockcache" or not is_loaded(), "nothing so far needs a compiler"
said += [tried(lambda: closed.compile("cubin")), repr(closed), int(closed.handle), closed.is_closed]
said += [repr(one), str(one.backend), type(one.backend).__name__, int(one.handle) != 0, one.is_closed]
for program in (renamed, late):
    code = program.compile("cubin")
    said += [code.name, bytes(code.code).hex()]
changing.name, changing.max_register_count = "second", 16
code = late.compile("cubin")
said += [code.name, bytes(code.code).hex()]
one.close()
one.close()
said += [one.is_closed, tried(lambda: one.compile("cubin"))]
half = Program.__new__(Program)  # what a subclass has to clean up, if its own constructor failed
said += [half.is_closed, half.close(), tried(lambda: half.backend), repr(half), tried(lambda: half.handle)]
for code in (b"", 1, None, "\\ud800"):
    said.append(tried(lambda: Program(code, "c++")))
for given in [("", "c+"), ("", 1), ("", None), ("", "c++", 1)]:
    said.append(tried(lambda: Program(*given)))
for more in [{"name": "\\ud800"}, {"name": 1}, {"extra_sources": [("a", "b")]}, {"name": None}, {"debug": True}]:
    said.append(tried(lambda: Program("", "c++", options(**more))))
print(json.dumps(said))
"""


def test_a_program_that_is_not_made_yet_says_what_cuda_core_says() -> None:
    said = []
    for whose in ("lockcache", "cuda.core"):
        ran = subprocess.run([sys.executable, "-c", SAID, whose], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        said.append(json.loads(ran.stdout))
    assert said[0] == said[1]


def test_threads_that_need_a_program_at_once_make_one(cache_path: Path) -> None:
    program = f"""
import threading
for _ in range(20):
    versions._loaded = None  # as before it was loaded
    one = Program({PLAIN!r}, "c++", ProgramOptions(arch="sm_90"))
    assert not one._is_made
    barrier, handles = threading.Barrier(4), []
    threads = [threading.Thread(target=lambda: (barrier.wait(), handles.append(int(one.handle)))) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(handles) == 4 and len({{*handles}}) == 1, handles
"""
    run(cache_path, program)


# A program whose making calls `during` at once: its options are compared with what they were.
MAKING = f"""
import signal, threading

class Value(str):
    def __eq__(self, other):
        during()
        return True

one = Program({PLAIN!r}, "c++", options := ProgramOptions(arch="sm_90", name="one"))
assert not one._is_made
one._options_then[:] = [Value("one") if value == "one" else value for value in one._options_then]
signal.alarm(30)
"""


def test_a_signal_handler_may_close_a_program_that_is_being_made(cache_path: Path) -> None:
    program = """
signal.signal(signal.SIGUSR1, lambda *_: one.close())
during = lambda: signal.raise_signal(signal.SIGUSR1)
one.handle
assert one.is_closed and int(one.handle) == 0
"""
    run(cache_path, MAKING + program)


def test_a_child_that_is_forked_while_a_thread_makes_a_program_makes_its_own(cache_path: Path) -> None:
    program = """
begun, forking = threading.Event(), threading.Event()
during = lambda: (begun.set(), forking.wait())
os.register_at_fork(before=forking.set)
maker = threading.Thread(target=lambda: one.handle)
maker.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    os._exit(int(one.handle) == 0)
assert os.waitpid(child, 0)[1] == 0
maker.join()
"""
    run(cache_path, MAKING + program)
