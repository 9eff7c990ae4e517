# SPDX-License-Identifier: Apache-2.0
"""lockcache.cuda.Program: cuda.core's Program, cached. Every program here is compiled by the real compilers."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

cuda_core = pytest.importorskip("cuda.core")

from cuda.core import ProgramOptions  # noqa: E402

from lockcache import FileStreamProgramCache, InMemoryProgramCache  # noqa: E402
from lockcache.arguments import warn_once  # noqa: E402
from lockcache.cuda import Program, restrict  # noqa: E402
from lockcache.lowlevel import Layout, read_counters  # noqa: E402
from tests.cuda.programs import NAMES, NVVM, PLAIN, TEMPLATE, options  # noqa: E402
from tests.processes.crowd import run_all  # noqa: E402

INCLUDING = '#include "value.h"\nextern "C" __global__ void k(int *p) { *p = VALUE; }'


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "value.h").write_text("#define VALUE 1\n")
    return folder


def compile_including(headers: Path, cache: object) -> bytes:
    return Program(INCLUDING, "c++", options(include_path=[str(headers)])).compile("cubin", cache=cache).code


def test_it_is_a_cuda_core_program_and_compiles_as_one_without_a_cache() -> None:
    program = Program(PLAIN, "c++", options())
    assert isinstance(program, cuda_core.Program)
    expected = cuda_core.Program(PLAIN, "c++", options()).compile("cubin")
    assert program.compile("cubin").code == expected.code


@pytest.mark.parametrize("make", [InMemoryProgramCache, None], ids=["memory", "filestream"])
def test_the_second_compilation_is_a_hit_with_the_same_code(make, cache_path: Path) -> None:
    cache = make() if make else FileStreamProgramCache(cache_path)
    first = Program(PLAIN, "c++", options()).compile("cubin", cache=cache)
    again = Program(PLAIN, "c++", options()).compile("cubin", cache=cache)
    assert (again.code, again.code_type, again.name) == (first.code, "cubin", first.name)
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)


def test_options_are_what_cuda_core_takes_and_a_dict_has_the_key_of_equal_options(cache) -> None:
    given = {"arch": "sm_90", "define_macro": [("A", "1")]}
    assert Program(PLAIN, "c++", dict(given)).compile("cubin").code
    first = Program(PLAIN, "c++", given).compile("cubin", cache=cache)
    given["arch"] = "sm_80"  # as with cuda.core, the program has the options that it was made with
    again = Program(PLAIN, "c++", options(define_macro=[("A", "1")])).compile("cubin", cache=cache)
    assert again.code == first.code
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"arch": None},
        {"no such option": 1},
        {1: 2},
        5,
        "sm_90",
        (),
        [("arch", "sm_90")],
        MappingProxyType({}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("code", [PLAIN, 5], ids=["code", "no code"])
def test_options_that_cuda_core_refuses_are_refused_with_its_error(given: object, code: object) -> None:
    def outcome(kind: type) -> str:
        try:
            return repr(kind(code, "c++", given))
        except (TypeError, RuntimeError) as error:  # without a driver None is one, as there is no default architecture
            return f"{type(error).__name__}: {error}"

    assert outcome(Program) == outcome(cuda_core.Program)


def test_a_template_comes_back_with_the_symbol_mapping_of_a_fresh_compilation(cache) -> None:
    fresh = cuda_core.Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=NAMES)
    first = Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=NAMES, cache=cache)
    hit = Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=NAMES[::-1], cache=cache)
    assert hit.symbol_mapping == first.symbol_mapping == fresh.symbol_mapping
    assert hit.code == fresh.code
    assert cache.stats().hits == 1


def test_other_name_expressions_are_another_entry(cache) -> None:
    Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=NAMES, cache=cache)
    other = Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=["k<double>"], cache=cache)
    assert set(other.symbol_mapping) == {"k<double>"}


def test_a_changed_header_is_a_miss_and_an_unchanged_one_a_hit(headers: Path, cache) -> None:
    one = compile_including(headers, cache)
    assert compile_including(headers, cache) == one
    assert cache.stats().puts == 1
    (headers / "value.h").write_text("#define VALUE 2\n")
    assert compile_including(headers, cache) != one
    assert cache.stats().puts == 2


def test_a_header_that_changes_during_the_compilation_is_not_kept(
    headers: Path, cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_now = Program._compile_now

    def edit_and_compile(self, *arguments):
        compiled = compile_now(self, *arguments)
        (headers / "value.h").write_text("#define VALUE 9\n")
        return compiled

    monkeypatch.setattr(Program, "_compile_now", edit_and_compile)
    assert compile_including(headers, cache)
    assert (cache.stats().puts, len(cache)) == (0, 0)


@pytest.mark.parametrize("target", ["cubin", "ltoir"])
def test_lto_ir_is_cached_and_without_its_option_it_is_empty_and_not_stored(target: str, cache) -> None:
    linkable = options(link_time_optimization=True) if target == "ltoir" else options()
    first = Program(PLAIN, "c++", linkable).compile(target, cache=cache)
    assert Program(PLAIN, "c++", linkable).compile(target, cache=cache).code == first.code != b""
    if target == "ltoir":
        empty = Program(PLAIN, "c++", options()).compile("ltoir", cache=cache)
        assert empty.code == cuda_core.Program(PLAIN, "c++", options()).compile("ltoir").code == b""
        assert (len(cache), cache.stats().uncacheable) == (1, 1)


def test_nvvm_is_cached(cache) -> None:
    first = Program(NVVM, "nvvm", options()).compile("ptx", cache=cache)
    again = Program(NVVM, "nvvm", options()).compile("ptx", cache=cache)
    assert again.code == first.code
    assert b".visible .entry k" in first.code
    assert cache.stats().hits == 1


def test_ptx_is_linked_once(cache) -> None:
    ptx = Program(NVVM, "nvvm", options()).compile("ptx").code.decode().rstrip("\0")
    first = Program(ptx, "ptx", options()).compile("cubin", cache=cache)
    assert Program(ptx, "ptx", options()).compile("cubin", cache=cache).code == first.code
    assert cache.stats().hits == 1


def test_logs_are_those_of_a_compilation_on_a_hit_too(cache) -> None:
    warns = "__global__ void k() { int unused = 1; }"
    Program(warns, "c++", options()).compile("cubin", cache=cache)  # without a log, which a later one asks for
    logs = [io.StringIO() for _ in range(3)]
    cuda_core.Program(warns, "c++", options()).compile("cubin", logs=logs[0])
    for log in logs[1:]:
        Program(warns, "c++", options()).compile("cubin", logs=log, cache=cache)
    assert "unused" in logs[0].getvalue()
    assert logs[0].getvalue() == logs[1].getvalue() == logs[2].getvalue()
    assert cache.stats().hits == 2


def test_a_long_log_is_whole_for_who_compiles_and_marked_where_it_is_cut_on_a_hit(cache) -> None:
    warns = "".join(f"__global__ void k{n}() {{ int unused_{n} = 1; }}\n" for n in range(300))
    logs = [io.StringIO(), io.StringIO()]
    for log in logs:
        Program(warns, "c++", options()).compile("cubin", logs=log, cache=cache)
    whole, cut = (log.getvalue() for log in logs)
    assert len(whole) > 16_384
    assert cut == f"{whole[:16_384]}\n[cut: {len(whole)} characters]\n"


@pytest.mark.parametrize(
    "code, more, reason",
    [
        (PLAIN, {"time": True}, "options.time"),
        ("__global__ void k() { const char *t = __TIME__; }", {}, "__TIME__"),
        (PLAIN, {"ptxas_options": "--options-file=o"}, "--options-file=o"),
        (PLAIN, {"pch": True}, "options.pch"),
        ('#ifdef NEVER\n#include "blob.h"\n#endif\n' + PLAIN, {"include_path": "."}, "blob.h"),
    ],
)
def test_what_cannot_be_cached_is_compiled_and_returned_and_counted(
    code: str, more: dict, reason: str, cache, tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o").write_text("--opt-level=1\n")
    with open(tmp_path / "blob.h", "wb") as blob:
        blob.truncate(65 << 20)
    warn_once.cache_clear()
    expected = cuda_core.Program(code, "c++", options(**more)).compile("cubin").code
    for _ in range(2):
        assert Program(code, "c++", options(**more)).compile("cubin", cache=cache).code == expected
    stats = cache.stats()
    assert (stats.uncacheable, stats.puts, stats.misses, len(cache)) == (2, 0, 0, 0)
    [said] = [record.getMessage() for record in caplog.records if "not stored" in record.getMessage()]
    assert reason in said
    assert "extra_digest" not in said


def test_mistakes_are_the_compilers_to_report(cache) -> None:
    for mistake in (
        {"target_type": "elf"},
        *({"target_type": "cubin", "name_expressions": n} for n in (5, (5,), ([],))),
    ):
        assert _outcome(Program, cache=cache, **mistake) == _outcome(cuda_core.Program, **mistake)
        assert _outcome(Program, **mistake) == _outcome(cuda_core.Program, **mistake)


def _outcome(kind: type, **arguments: object) -> str:
    try:
        return str(kind(PLAIN, "c++", options()).compile(**arguments))
    except Exception as error:  # noqa: BLE001 (whatever cuda.core raises)
        return f"{type(error)}: {error}"


def test_a_compilation_that_fails_fails_for_each_caller_and_leaves_nothing(cache, cache_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Exception, match="NVRTC_ERROR_COMPILATION"):
            Program("not a program", "c++", options()).compile("cubin", cache=cache)
    assert len(cache) == 0
    assert os.listdir(cache_path / "lockcache" / "leases") == []


def test_a_cache_of_cuda_cores_is_left_to_cuda_core() -> None:
    from cuda.core.utils import InMemoryProgramCache as Upstream

    upstream = Upstream()
    first = Program(PLAIN, "c++", options()).compile("cubin", cache=upstream)
    assert Program(PLAIN, "c++", options()).compile("cubin", cache=upstream).code == first.code
    assert len(upstream) == 1
    with pytest.raises(TypeError, match="cache must be"):
        Program(PLAIN, "c++", options()).compile("cubin", cache={})


def test_a_closed_program_says_so(cache) -> None:
    program = Program(PLAIN, "c++", options())
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.compile("cubin", cache=cache)


def _herd(path: str) -> None:
    with FileStreamProgramCache(path) as cache:
        _compile_templates(cache)


def _compile_templates(cache: FileStreamProgramCache) -> None:
    for number in range(8):
        source = TEMPLATE.replace("T(1)", f"T({number})")
        compiled = Program(source, "c++", options()).compile("cubin", name_expressions=NAMES, cache=cache)
        assert set(compiled.symbol_mapping) == set(NAMES)


@pytest.mark.long
def test_a_cold_herd_compiles_each_template_once(cache_path: Path) -> None:
    run_all("spawn", _herd, [(str(cache_path),)] * 8)
    counted = read_counters(Layout(str(cache_path)))
    assert (counted.hits, counted.misses, counted.puts) == (7 * 8, 8, 8)
    assert counted.waits <= counted.hits


def _restrict(path: str, newest: tuple[int, int], probe: Any = None) -> tuple[bytes, int]:
    """Compile with ``restrict`` and then without, in a process of its own, which NVRTC has remember it."""
    restrict._NEWEST_WITH_THE_FAULT = newest  # type: ignore[misc]
    if probe:
        restrict._compiled = probe
    source = 'extern "C" __global__ void k(int *a, int *b) { *a = 1; *b = 2; *a += *b; a[1] = *a; }'
    cache = FileStreamProgramCache(path)
    Program(source, "c++", options(restrict=True)).compile("cubin", cache=cache)
    tainted = Program(source, "c++", options()).compile("cubin", cache=cache)
    return tainted.code, len(cache)


def _repaired(arch: str, *, restrict: bool | None) -> bytes:
    return str(restrict).encode()


def _failing(arch: str, *, restrict: bool | None) -> bytes:
    raise RuntimeError("no such architecture")


@pytest.mark.parametrize(
    "newest, probe, stored",
    [
        pytest.param((13, 5), None, 1, id="known to have the fault"),
        pytest.param((0, 0), None, 1, id="later, and has it"),
        pytest.param((0, 0), _repaired, 2, id="later, and repaired"),
        pytest.param((0, 0), _failing, 1, id="later, and not to be asked"),
    ],
)
def test_what_follows_a_restrict_compilation_in_its_process_is_returned_and_not_stored(
    cache_path: Path, newest: tuple[int, int], probe: Any, stored: int
) -> None:
    [(code, entries)] = run_all("spawn", _restrict, [(str(cache_path), newest, probe)])
    assert code
    assert entries == stored


@pytest.mark.gpu
def test_a_kernel_of_a_template_from_the_cache_is_found_by_its_name_expression(cache) -> None:
    from cuda.core import Device

    Device().set_current()
    for _ in range(2):
        compiled = Program(TEMPLATE, "c++", ProgramOptions()).compile("cubin", name_expressions=NAMES, cache=cache)
        assert compiled.get_kernel("k<int>") is not None
    assert cache.stats().hits == 1


def test_names_that_can_be_read_only_once_are_read_once(cache) -> None:
    once = Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=iter(NAMES), cache=cache)
    again = Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions=NAMES, cache=cache)
    assert set(once.symbol_mapping) == set(again.symbol_mapping) == set(NAMES)
    with pytest.raises(Exception, match="name expression"):  # cuda.core takes it for six names
        Program(TEMPLATE, "c++", options()).compile("cubin", name_expressions="k<int>", cache=cache)


@pytest.mark.long
def test_with_compile_once_a_tainted_compilation_keeps_nobody_waiting(cache_path: Path) -> None:
    [(code, entries)] = run_all("spawn", _restrict_implicit, [(str(cache_path),)])
    assert code
    assert entries == 1
    assert os.listdir(cache_path / "lockcache" / "leases") == []


def _restrict_implicit(path: str) -> tuple[bytes, int]:
    cache = FileStreamProgramCache(path, compile_once=True)
    Program(PLAIN, "c++", options(restrict=True)).compile("cubin", cache=cache)
    tainted = Program(PLAIN, "c++", options()).compile("cubin", cache=cache)
    assert os.listdir(os.path.join(path, "lockcache", "leases")) == []
    return tainted.code, len(cache)


@pytest.mark.slow
def test_the_first_program_of_a_home_with_nvrtcs_own_headers_is_stored(tmp_path: Path) -> None:
    """NVRTC writes them to the home directory; the fingerprint has to be that of the headers it then compiles with."""
    code = (
        "import cuda.core, lockcache, lockcache.cuda\n"
        "options = cuda.core.ProgramOptions(arch='sm_90', use_bundled_headers=True)\n"
        "source = '#include <cuda_fp16.h>\\n__global__ void k(__half *p) { *p = __half(1); }'\n"
        "with lockcache.FileStreamProgramCache('kernels') as cache:\n"
        "    lockcache.cuda.Program(source, 'c++', options).compile('cubin', cache=cache)\n"
        "    print(cache.stats().puts, cache.stats().hits)\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        for _ in range(2)
    ]
    assert [(ran.stdout.split(), ran.stderr) for ran in said] == [(["1", "0"], ""), (["0", "1"], "")]
