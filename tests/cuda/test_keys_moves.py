# SPDX-License-Identifier: Apache-2.0
"""The same program and headers in another place: one key where the output cannot tell, two where it can."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")

from lockcache import FileStreamProgramCache, InMemoryProgramCache, TieredProgramCache  # noqa: E402
from lockcache.cuda import Program  # noqa: E402

pytestmark = pytest.mark.cuda

KERNEL = '#include "h.h"\nextern "C" __global__ void k(long long *p) { *p = (long long)f(p); }'
# Has code of its own, which line information names.
WORKING = "static __device__ long long f(const void *p) { return ((volatile const long long *)p)[1] * 7; }"
PLAIN = "static __device__ long long f(const void *) { return 3; }"


def compiled(cache: InMemoryProgramCache, source: str, target: str = "cubin", **fields: Any) -> bytes:
    """Returns the code, which is what the compiler gives here and now."""
    # With a name: cuda.core compiles a program without one, for debuggers, under another name each time.
    options = core.ProgramOptions(**{"arch": "sm_90", "name": "k.cu", **fields})
    code = bytes(Program(source, "c++", options).compile(target, cache=cache).code)
    fresh = bytes(core.Program(source, "c++", options).compile(target).code)
    assert code == fresh
    return code


@pytest.fixture
def places(tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    def make(header: str) -> tuple[str, str]:
        for name in ("one", "the/other"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "h.h").write_text(header)
        return str(tmp_path / "one"), str(tmp_path / "the/other")

    return make


@pytest.mark.parametrize(
    "spell",
    [
        lambda path: {"include_path": path},
        lambda path: {"include_path": [path]},
        lambda path: {"include_path": path + "/"},
        lambda path: {"include_path": f"{path}/../{os.path.basename(path)}"},
        lambda path: {"include_path": os.path.relpath(path)},
        lambda path: {"include_path": path, "pre_include": "h.h"},
        lambda path: {"include_path": path, "pre_include": f"{path}/h.h"},
    ],
    ids=["a str", "a list", "a final slash", "dots", "relative", "forced", "forced by its path"],
)
def test_where_headers_lie_is_not_in_the_key(spell, places) -> None:
    cache = InMemoryProgramCache()
    one, other = places(f"#pragma once\n{PLAIN}")
    assert compiled(cache, KERNEL, **spell(one)) == compiled(cache, KERNEL, **spell(other))
    assert compiled(cache, KERNEL, include_path=one)
    assert cache.stats().puts <= 2  # of the forced ones, and of the last


def test_a_link_to_the_headers_and_the_working_directory_are_not_in_the_key(
    places, tmp_path: Path, monkeypatch
) -> None:
    cache = InMemoryProgramCache()
    one, other = places(PLAIN)
    os.symlink(one, tmp_path / "link")
    compiled(cache, KERNEL, include_path=one)
    monkeypatch.chdir(other)
    compiled(cache, KERNEL, include_path=str(tmp_path / "link"))
    compiled(cache, KERNEL, include_path=".")
    assert (cache.stats().hits, cache.stats().puts) == (2, 1)


@pytest.mark.parametrize("fields", [{"lineinfo": True}, {"debug": True}, {"target": "ltoir"}], ids=str)
def test_options_that_put_paths_into_the_output_keep_them_in_the_key(fields: dict[str, Any], places) -> None:
    cache = InMemoryProgramCache()
    one, other = places(WORKING)
    if "target" in fields:
        fields["link_time_optimization"] = True
    assert compiled(cache, KERNEL, include_path=one, **fields) != compiled(cache, KERNEL, include_path=other, **fields)


# One of each kind; tests/unit/headers/test_paths.py has more. All but the first hid it once.
@pytest.mark.parametrize(
    "header",
    [
        "USE",
        "#define P(a, b, c) a##b##c\nstatic __device__ int f(const void *) { return sizeof(P(__, FI, LE__)); }",
        'static __device__ const char *r = R"(")" "/*";\nUSE/* */',
        """#define __assertfail(a, b, ...) (void)(q = sizeof(b))
        static __device__ int f(const long long *p) { int q = 0; assert(*p > 3); return q; }""",
        "#define __CCCL_COMPILER_H\nUSE",
    ],
)
def test_a_header_that_names_its_path_keeps_it_in_the_key(header: str, places) -> None:
    cache = InMemoryProgramCache()
    one, other = places(header.replace("USE", "static __device__ int f(const void *) { return sizeof(__FILE__); }\n"))
    assert compiled(cache, KERNEL, include_path=one) != compiled(cache, KERNEL, include_path=other)
    assert cache.stats().puts == 2


@pytest.mark.parametrize(
    "header, fields",
    [
        ("static __device__ int f(const void *) { return sizeof(__FILE__); }", {}),
        ("static __device__ int f(const long long *p) { assert(*p > 3); return 3; }", {}),
        (WORKING, {"lineinfo": True}),
        (WORKING, {"debug": True}),
        (PLAIN, {"target": "ltoir", "link_time_optimization": True}),
    ],
    ids=["a use", "an assertion", "lineinfo", "debug", "ltoir"],
)
def test_a_header_found_elsewhere_in_the_search_order_is_spelled_otherwise(
    header: str, fields: dict[str, Any], places
) -> None:
    """The options and the content are what they were: only the directory in which the header is found is another."""
    cache = InMemoryProgramCache()
    one, other = places(header)
    os.unlink(f"{one}/h.h")
    first = compiled(cache, KERNEL, include_path=[one, other], **fields)
    os.rename(f"{other}/h.h", f"{one}/h.h")
    assert compiled(cache, KERNEL, include_path=[one, other], **fields) != first


def test_a_header_found_elsewhere_in_the_search_order_is_a_hit_where_the_output_cannot_tell(places) -> None:
    cache = InMemoryProgramCache()
    one, other = places(PLAIN)
    os.unlink(f"{one}/h.h")
    compiled(cache, KERNEL, include_path=[one, other])
    os.rename(f"{other}/h.h", f"{one}/h.h")
    compiled(cache, KERNEL, include_path=[one, other])
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)


def test_a_program_without_a_name_is_searched_from_where_cuda_core_writes_it_for_debuggers(
    tmp_path: Path, monkeypatch
) -> None:
    for folder in ("work", "temporary"):
        (tmp_path / folder).mkdir()
    (tmp_path / "work/h.h").write_text(PLAIN)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    cache, options = InMemoryProgramCache(), core.ProgramOptions(arch="sm_90", lineinfo=True)
    for salt in (4, 5):
        Program(KERNEL, "c++", options).compile("cubin", cache=cache)
        (tmp_path / "temporary/h.h").write_text(PLAIN.replace("3", str(salt)))
    (tmp_path / "work/h.h").write_text(PLAIN.replace("3", "6"))  # behind the other one
    Program(KERNEL, "c++", options).compile("cubin", cache=cache)
    assert (cache.stats().hits, cache.stats().puts) == (0, 3)


def test_a_computed_name_is_no_reason_to_miss_however_its_directory_is_spelled(places) -> None:
    cache = InMemoryProgramCache()
    one, other = places(PLAIN)
    source = KERNEL.replace('"h.h"', "NAME").replace("#include", "#define NAME <h.h>\n#include", 1)
    for path in (one, f"{other}/", f"{other}//"):
        compiled(cache, source, include_path=path, no_source_include=True)
    assert (cache.stats().hits, cache.stats().puts) == (2, 1)


@pytest.mark.parametrize("spelled", ["{}/", "{}//", "{}/.", "./../{}"])
def test_a_printed_path_is_found_however_it_is_spelled(spelled: str, tmp_path: Path, monkeypatch) -> None:
    cache = InMemoryProgramCache()
    for name in ("one", "another", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "h.h").write_text(ASSERTS)
    monkeypatch.chdir(tmp_path if "." not in spelled[:1] else tmp_path / "work")
    os.unlink(tmp_path / "work/h.h")
    codes = {compiled(cache, KERNEL, include_path=spelled.format(name)) for name in ("one", "another")}
    assert len(codes) == 2


ASSERTS = "static __device__ int f(const long long *p) { assert(*p > 3); return 3; }"


@pytest.mark.long
def test_cccl_travels_although_it_names_paths(tmp_path: Path) -> None:
    """A user's second virtual environment: cub, whose assertions are off, and an array whose check is compiled in."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    found = pathfinder.find_nvidia_header_directory("cccl")
    cudart = pathfinder.find_nvidia_header_directory("cudart")
    if found is None or cudart is None:
        pytest.skip("needs the wheels nvidia-cuda-cccl and nvidia-cuda-runtime")
    moved = tmp_path / "cccl"
    shutil.copytree(found, moved)
    cache = InMemoryProgramCache()
    cub = """#include <cub/block/block_reduce.cuh>
    extern "C" __global__ void k(int *p) { using R = cub::BlockReduce<int, 64>; __shared__ R::TempStorage t;
      *p = R(t).Sum(threadIdx.x); }"""
    for path in (found, str(moved)):
        compiled(cache, cub, include_path=[path, cudart], std="c++17")
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)
    on = {"define_macro": "CCCL_ENABLE_ASSERTIONS", "std": "c++17"}
    checked = """#include <cuda/std/span>
    extern "C" __global__ void k(int *p, int n) { cuda::std::span<int> s(p, 9); s[n] = 1; }"""
    codes = {compiled(cache, checked, include_path=[path, cudart], **on) for path in (found, str(moved))}
    assert len(codes) == 2


def test_bundled_headers_of_two_homes_are_one_key_and_a_fresh_home_keeps_its_first(tmp_path: Path, monkeypatch) -> None:
    cache = InMemoryProgramCache()
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half *p) { *p = __hadd(*p, p[1]); }'
    for home in ("one", "other", "one"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
        options = core.ProgramOptions(arch="sm_90", use_bundled_headers=True)
        Program(source, "c++", options).compile("cubin", cache=cache)
    assert (cache.stats().hits, cache.stats().puts) == (2, 1)


def test_a_digest_of_headers_vouches_for_no_file_of_ptxas_and_no_precompiled_header(places, tmp_path: Path) -> None:
    one, _ = places(PLAIN)
    cache = InMemoryProgramCache()
    for text in ("--opt-level=0\n", "--opt-level=3\n"):
        (tmp_path / "options").write_text(text)
        compiled(cache, KERNEL, include_path=one, ptxas_options=f"--options-file={tmp_path}/options")
    compiled(cache, KERNEL, include_path=one, pch=True)
    assert (cache.stats().uncacheable, cache.stats().puts) == (3, 0)


def test_equal_headers_beside_the_source_and_in_a_directory_that_is_searched_print_paths_of_their_own(
    places, monkeypatch
) -> None:
    cache = InMemoryProgramCache()
    one, other = places(ASSERTS)
    monkeypatch.chdir(one)
    first = compiled(cache, KERNEL, include_path=str(Path(one).parent))
    monkeypatch.chdir(Path(one).parent)
    assert compiled(cache, KERNEL, include_path=other) != first


@pytest.mark.parametrize("is_tiered", [False, True])
def test_a_printed_path_is_one_lookup_and_takes_no_turn(is_tiered: bool, places, tmp_path: Path) -> None:
    one, other = places(ASSERTS)
    store = FileStreamProgramCache(tmp_path / "cache", compile_once=True)
    with TieredProgramCache(InMemoryProgramCache(), store) if is_tiered else store as cache:
        for path in (one, other, one, other):
            compiled(cache, KERNEL, include_path=path)
        assert (cache.stats().hits, cache.stats().misses, cache.stats().puts) == (2, 2, 2)
        with pytest.raises(Exception, match="NVRTC_ERROR_COMPILATION"):
            compiled(cache, KERNEL.replace("*p =", "*q ="), include_path=one)
        assert os.listdir(tmp_path / "cache/lockcache/leases") == []


def test_code_is_not_stored_that_another_call_of_the_program_has_changed() -> None:
    cache = InMemoryProgramCache()
    template = "template <typename T> __global__ void f(T *p) { *p = 1; }" + NO_HEADER
    program = Program(template, "c++", core.ProgramOptions(arch="sm_90"))
    program.compile("cubin", ("f<int>",))
    assert b"_Z1f" in program.compile("cubin", cache=cache).code  # NVRTC keeps the name
    options = core.ProgramOptions(arch="sm_90", include_path=["."])
    changed = Program(NO_HEADER, "c++", options)
    options.include_path.append("..")
    changed.compile("cubin", cache=cache)
    assert (cache.stats().puts, cache.stats().uncacheable) == (0, 2)


NO_HEADER = 'extern "C" __global__ void k(int *p) { *p = 1; }'


@pytest.mark.parametrize("text", ['"__DATE__"', "__TIME__"])
def test_a_header_that_gets_the_time_in_while_it_is_compiled_loses_no_code(places, monkeypatch, text: str) -> None:
    cache = InMemoryProgramCache()
    one, _ = places(PLAIN)
    compile_now = Program._compile_now

    def edit_and_compile(self, *arguments):
        found = compile_now(self, *arguments)
        (Path(one) / "h.h").write_text(PLAIN + f"\n#define WHEN {text}\n")
        return found

    monkeypatch.setattr(Program, "_compile_now", edit_and_compile)
    options = core.ProgramOptions(arch="sm_90", include_path=one)
    assert Program(KERNEL, "c++", options).compile("cubin", cache=cache).code
    assert (cache.stats().puts, cache.stats().uncacheable) == (0, 1)


@pytest.mark.parametrize("end", [" ", "\n", "/ ", "\t\r\n"])
@pytest.mark.parametrize("header", [PLAIN, ASSERTS], ids=["plain", "printed"])
def test_a_blank_end_of_a_directory_is_none_to_nvrtc_and_none_here(end: str, header: str, places) -> None:
    cache = InMemoryProgramCache()
    one, _ = places(header)
    first = compiled(cache, KERNEL, include_path=one + end)
    (Path(one) / "h.h").write_text(header.replace("3", "4"))
    assert compiled(cache, KERNEL, include_path=[one + end]) != first
    assert cache.stats().puts == 2


def test_a_name_with_a_directory_and_no_include_is_cached() -> None:
    cache = InMemoryProgramCache()
    for _ in range(2):
        compiled(cache, NO_HEADER, name="src/k.cu")
    assert (cache.stats().hits, cache.stats().uncacheable) == (1, 0)
