"""lockcache.keys with the real compilers: whatever changes their output changes the key, and nothing else has to."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.errors import UncacheableError  # noqa: E402
from lockcache.keys import make_program_cache_key, options, ptx, versions  # noqa: E402

pytestmark = pytest.mark.cuda

SOURCE = """
namespace { __device__ __noinline__ float helper(float x, float y) { return x * y + sqrtf(x) / y; } }
static __device__ int counter;
template <class T> __global__ void scale(T *a, T f) { a[threadIdx.x] *= f; }
#ifdef FACTOR
#define SCALE FACTOR
#else
#define SCALE 2
#endif
extern "C" __global__ void k(float *a, const float *b, int n) {
    float s = SCALE; long long unused = __cplusplus;
    for (int i = 0; i < n; ++i) { s += helper(a[i], b[i + 1]) * 1e-40f; a[i] = s; atomicAdd(&counter, (int)unused); }
}
"""

NVVM = """target triple = "nvptx64-unknown-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @simple(float %x, float %y, float* %p) {
  %d = fdiv float %x, %y
  %m = fmul float %d, %x
  %s = fadd float %m, %y
  store float %s, float* %p
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{void (float, float, float*)* @simple, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0, i32 3, i32 1}
"""

REFUSED = "refused, whatever else is given"
EXTERNAL = "refused without extra_digest"
CHANGES = "another output"
SEEN = "the compiler sees it; the output of SOURCE happens to be the same, or none"
UNUSED = "does not reach this compiler"

#: Every field of ProgramOptions: what it means for C++, and a value unlike the default.
CXX: dict[str, tuple[str, Any]] = {
    "name": (CHANGES, "other.cu"),
    "arch": (CHANGES, "sm_80"),
    "relocatable_device_code": (CHANGES, True),
    "extensible_whole_program": (SEEN, True),
    "debug": (CHANGES, True),
    "lineinfo": (CHANGES, True),
    "device_code_optimize": (SEEN, True),
    "ptxas_options": (CHANGES, "-O0"),
    "max_register_count": (CHANGES, 16),
    "ftz": (CHANGES, True),
    "prec_sqrt": (CHANGES, False),
    "prec_div": (CHANGES, False),
    "fma": (CHANGES, False),
    "use_fast_math": (CHANGES, True),
    "extra_device_vectorization": (SEEN, True),
    "link_time_optimization": (SEEN, True),
    "gen_opt_lto": (SEEN, True),
    "define_macro": (CHANGES, ("FACTOR", "3")),
    "undefine_macro": (SEEN, "FACTOR"),
    "include_path": (EXTERNAL, "."),
    "use_bundled_headers": (SEEN, True),
    "pre_include": (EXTERNAL, "x.h"),
    "no_source_include": (SEEN, True),
    "std": (CHANGES, "c++20"),
    "builtin_move_forward": (SEEN, False),
    "builtin_initializer_list": (SEEN, False),
    "disable_warnings": (SEEN, True),
    "restrict": (CHANGES, True),
    "device_as_default_execution_space": (SEEN, True),
    "device_int128": (SEEN, True),
    "optimization_info": (SEEN, "inline"),
    "no_display_error_number": (SEEN, True),
    "diag_error": (SEEN, 1),
    "diag_suppress": (SEEN, [1, 2]),
    "diag_warn": (SEEN, (1,)),
    "brief_diagnostics": (SEEN, True),
    "time": (REFUSED, "time.csv"),
    "split_compile": (SEEN, 2),
    "fdevice_syntax_only": (CHANGES, True),
    "minimal": (SEEN, True),
    "no_cache": (SEEN, True),
    "fdevice_time_trace": (REFUSED, "trace.json"),
    "device_float128": (SEEN, True),
    "frandom_seed": (SEEN, "7"),
    "ofast_compile": (CHANGES, "max"),
    "pch": (EXTERNAL, True),
    "create_pch": (REFUSED, "x.pch"),
    "use_pch": (EXTERNAL, "x.pch"),
    "pch_dir": (EXTERNAL, "."),
    "pch_verbose": (SEEN, True),
    "pch_messages": (SEEN, True),
    "instantiate_templates_in_pch": (SEEN, True),
    "extra_sources": (REFUSED, [("a", "b")]),
    "use_libdevice": (UNUSED, True),
    "numba_debug": (SEEN, True),
}

#: Not compiled here, their keys are checked all the same: the first writes to the user's cache directory, the next two
#: fail with these options alone, and after one compilation with the last NVRTC 13.5 compiles everything in this process
#: as if it were set.
NOT_COMPILED = {"use_bundled_headers", "numba_debug", "device_float128", "restrict"}


def make_options(**fields: Any) -> Any:
    return core.ProgramOptions(**{"arch": "sm_90", "name": "k.cu", **fields})


def key(**changes: Any) -> bytes:
    arguments = {"code": SOURCE, "code_type": "c++", "options": make_options(), "target_type": "cubin", **changes}
    return make_program_cache_key(**arguments)


def compile_cxx(target_type: str, code: str = SOURCE, **fields: Any) -> bytes:
    """NVRTC's output. Not through Program: that wants a driver for PTX, and renames a debugged default program."""
    chosen = make_options(**fields)
    rendered = chosen.as_bytes("nvrtc", target_type)
    _, program = nvrtc.nvrtcCreateProgram(code.encode(), chosen.name.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(rendered), rendered)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, rendered
    suffix = target_type.upper()
    _, size = getattr(nvrtc, f"nvrtcGet{suffix}Size")(program)
    output = bytes(bytearray(b" " * size))
    getattr(nvrtc, f"nvrtcGet{suffix}")(program, output)
    nvrtc.nvrtcDestroyProgram(program)
    return output


@pytest.fixture(scope="module")
def plain_cubin() -> bytes:
    return compile_cxx("cubin")


@pytest.fixture(scope="module")
def ptx_text() -> str:
    return compile_cxx("ptx", lineinfo=True).rstrip(b"\0 ").decode()


# ---- every option ----------------------------------------------------------------------------------------------------


def test_every_field_of_program_options_has_been_decided_about() -> None:
    fields = {field.name for field in dataclasses.fields(core.ProgramOptions)}
    assert fields - set(CXX) == set(), "new in cuda.core: decide in lockcache/keys and in this table"
    assert fields - options.KNOWN == set(), "new in cuda.core: decide in lockcache/keys, then add it to KNOWN"
    assert set(CXX) == options.KNOWN


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision in (CHANGES, SEEN)])
def test_an_option_that_nvrtc_sees_changes_the_key(field: str) -> None:
    value = CXX[field][1]
    for target_type in ("cubin", "ptx", "ltoir"):
        changed = key(options=make_options(**{field: value}), target_type=target_type)
        assert changed != key(target_type=target_type)
        assert changed == key(options=make_options(**{field: value}), target_type=target_type)


@pytest.mark.parametrize(
    "field", [field for field, (decision, _) in CXX.items() if decision == CHANGES and field not in NOT_COMPILED]
)
def test_an_option_said_to_change_the_output_does(field: str, plain_cubin: bytes) -> None:
    fields = {field: CXX[field][1]}
    if field in ("name", "std"):
        # Only the name that a program gives away, and the language version that it asks for, reach the output.
        code = '__device__ const char *n = __FILE__; extern "C" __global__ void k(long *a) { *a = __cplusplus; }'
        assert compile_cxx("ptx", code, **fields) != compile_cxx("ptx", code)
    else:
        assert compile_cxx("cubin", **fields) != plain_cubin


def test_restrict_changes_the_output_and_the_key() -> None:
    plain, restricted = (run_script(_SCRIPT, "cubin", repr(fields)) for fields in ({}, {"restrict": True}))
    assert plain[0] != restricted[0]
    assert plain[1] != restricted[1]


@pytest.mark.parametrize(
    "field", [field for field, (decision, _) in CXX.items() if decision == SEEN and field not in NOT_COMPILED]
)
def test_an_option_said_to_be_seen_can_be_compiled(field: str) -> None:
    compile_cxx("cubin", **{field: CXX[field][1]})


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision == UNUSED])
def test_an_option_that_does_not_reach_the_compiler_leaves_the_key_alone(field: str) -> None:
    assert key(options=make_options(**{field: CXX[field][1]})) == key()


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision in (REFUSED, EXTERNAL)])
def test_an_option_that_cannot_be_cached_is_refused_and_an_extra_digest_admits_the_external_ones(field: str) -> None:
    decision, value = CXX[field]
    changed = make_options(**{field: value})
    with pytest.raises(UncacheableError, match=field):
        key(options=changed)
    if decision == REFUSED:
        with pytest.raises(UncacheableError, match=field):
            key(options=changed, extra_digest=b"d")
    else:
        digested = key(options=changed, extra_digest=b"d")
        assert len({digested, key(options=changed, extra_digest=b"e"), key(extra_digest=b"d")}) == 3


@pytest.mark.parametrize(
    "one, other",
    [
        ({"ftz": 1}, {"ftz": True}),
        ({"debug": False}, {}),
        ({"ptxas_options": "-O1"}, {"ptxas_options": ["-O1"]}),
        ({"ptxas_options": ["-O1", "-v"]}, {"ptxas_options": ("-O1", "-v")}),
        ({"ptxas_options": []}, {}),
        ({"include_path": []}, {}),
        ({"define_macro": ("A", "2")}, {"define_macro": "A=2"}),
        ({"define_macro": ["A"]}, {"define_macro": "A"}),
        ({"diag_suppress": 1}, {"diag_suppress": ["1"]}),
        ({"name": None}, {"name": "default_program"}),
    ],
)
def test_options_that_the_compiler_cannot_tell_apart_are_one_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(options=make_options(**one)) == key(options=make_options(**other))


def test_the_order_of_macros_changes_the_key() -> None:
    assert key(options=make_options(define_macro=["A=1", "A=2"])) != key(
        options=make_options(define_macro=["A=2", "A=1"])
    )


def test_a_field_that_a_later_cuda_core_adds_changes_the_key_of_every_path() -> None:
    # Stands in for a later cuda.core: a dataclass field is what makes an option known to everybody but us.
    later = dataclasses.make_dataclass("Later", [("new_option", object, None)], bases=(core.ProgramOptions,))
    for code_type, target_type in (("c++", "cubin"), ("ptx", "cubin"), ("nvvm", "ptx")):
        keys = {
            key(options=later(arch="sm_90", new_option=value), code_type=code_type, target_type=target_type)
            for value in (None, True, "x", ["x"])
        }
        assert len(keys) == 4
        with pytest.raises(UncacheableError, match="new_option"):
            key(options=later(arch="sm_90", new_option=object()), code_type=code_type, target_type=target_type)


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_a_key_is_thirty_two_bytes_and_every_argument_changes_it() -> None:
    keys = [
        key(),
        key(code=SOURCE + " "),
        key(target_type="ptx"),
        key(target_type="ltoir"),
        key(code_type="ptx"),
        key(name_expressions=["scale<int>"]),
        key(name_expressions=[b"scale<int>"]),
        key(name_expressions=["scale<int>", "scale<float>"]),
        key(extra_digest=b""),
        key(extra_digest=b"x"),
    ]
    assert [len(each) for each in keys] == [32] * len(keys)
    assert len(set(keys)) == len(keys)


def test_code_and_target_types_are_taken_in_any_case() -> None:
    assert key(code_type="C++", target_type="CUBIN") == key()


def test_the_order_of_name_expressions_is_of_no_account() -> None:
    names = ["scale<int>", b"scale<int>", "k"]
    assert key(name_expressions=names) == key(name_expressions=iter(reversed(names)))


def test_every_bytes_like_extra_digest_of_the_same_bytes_is_the_same() -> None:
    assert key(extra_digest=b"abc") == key(extra_digest=bytearray(b"abc")) == key(extra_digest=memoryview(b"abc"))


# ---- what the process contributes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target_type, fields",
    [
        ("cubin", {"debug": True}),
        ("cubin", {"lineinfo": True}),
        ("ptx", {"debug": True}),
        ("ptx", {"lineinfo": True}),
        ("ltoir", {"link_time_optimization": True}),
        ("cubin", {}),
        ("ptx", {}),
        ("cubin", {"relocatable_device_code": True}),
    ],
)
def test_the_working_directory_changes_the_key_exactly_where_it_changes_the_output(
    target_type: str, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bytes, bytes]] = []
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for directory, pwd in ((tmp_path, tmp_path), (real, real), (real, link)):
        monkeypatch.chdir(directory)
        monkeypatch.setenv("PWD", str(pwd))
        seen.append((compile_cxx(target_type, **fields), key(options=make_options(**fields), target_type=target_type)))
    outputs = {output for output, _ in seen}
    assert len({made for _, made in seen}) == len(outputs)
    assert len(outputs) == (3 if fields.keys() & {"debug", "lineinfo", "link_time_optimization"} else 1)


def test_a_pwd_that_is_not_the_working_directory_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = set()
    for pwd in ("", str(tmp_path), str(tmp_path / "missing"), os.getcwd()):
        monkeypatch.setenv("PWD", pwd)
        keys.add(key(target_type="ltoir"))
    assert len(keys) == 1


def test_a_removed_working_directory_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(key(target_type="ltoir")) == 32


@pytest.mark.parametrize(
    "variable, value, target_type, fields",
    [
        ("NV_NVVM_VERSION", "nvvm-latest", "cubin", {}),
        ("LLVM_OVERRIDE_PRODUCER", "someone", "ltoir", {"link_time_optimization": True}),
        ("FINALIZER_USE_LEGACY_ELF_BUILDER", "1", "cubin", {}),
    ],
)
def test_an_environment_variable_that_changes_the_output_changes_the_key(
    variable: str, value: str, target_type: str, fields: dict[str, Any]
) -> None:
    # In processes of their own: NVRTC looks at some of them only once.
    plain, changed = (
        run_script(_SCRIPT, target_type, repr(fields), **environment) for environment in ({}, {variable: value})
    )
    assert plain[0] != changed[0], "this NVRTC no longer minds the variable"
    assert plain[1] != changed[1]


def test_the_key_is_the_same_in_every_process_whatever_the_hash_seed() -> None:
    here = key(name_expressions=["b", "a", b"a"], options=make_options(define_macro=["A", "B"])).hex()
    for seed in ("0", "1"):
        assert run_script(_KEY_SCRIPT, PYTHONHASHSEED=seed) == [here]


_SCRIPT = """
import sys, hashlib
from tests.cuda.test_keys_cuda import compile_cxx, key, make_options
target, fields = sys.argv[1], eval(sys.argv[2])
print(hashlib.sha256(compile_cxx(target, **fields)).hexdigest())
print(key(options=make_options(**fields), target_type=target).hex())
"""

_KEY_SCRIPT = """
from tests.cuda.test_keys_cuda import key, make_options
print(key(name_expressions=["b", "a", b"a"], options=make_options(define_macro=["A", "B"])).hex())
"""


def run_script(script: str, *arguments: str, **environment: str) -> list[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **environment}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


# ---- headers and the clock -------------------------------------------------------------------------------------------

USE_FOO = 'extern "C" __global__ void k(int *a) { *a = FOO; }'


@pytest.mark.parametrize(
    "directive",
    [
        '#include "foo.h"',
        '#inc\\\nlude "foo.h"',
        '%:include "foo.h"',
        '/* a\n b */ # /* c */ include "foo.h"',
        '#define H "foo.h"\n#include H',
        "#include <{directory}/foo.h>",
        '#if __has_include("foo.h")\n#include "foo.h"\n#endif',
    ],
)
def test_code_whose_output_follows_a_header_that_no_option_names_is_refused(
    directive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = directive.format(directory=tmp_path) + "\n" + USE_FOO
    outputs = set()
    for value in (7, 8):
        (tmp_path / "foo.h").write_text(f"#define FOO {value}\n")
        outputs.add(compile_cxx("ptx", code))
    assert len(outputs) == 2
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(code=code)
    assert key(code=code, extra_digest=b"7") != key(code=code, extra_digest=b"8")


def test_headers_that_nvrtc_brings_along_need_no_extra_digest() -> None:
    code = "#include <cuda_fp16.h>\n" + SOURCE
    assert len(key(code=code, options=make_options(use_bundled_headers=True))) == 32
    quoted = '#include "cuda_fp16.h"\n' + SOURCE
    with pytest.raises(UncacheableError, match="working directory"):
        key(code=quoted, options=make_options(use_bundled_headers=True))
    assert len(key(code=quoted, options=make_options(use_bundled_headers=True, no_source_include=True))) == 32


# ---- PTX and NVVM ----------------------------------------------------------------------------------------------------

PTX_VALUES: dict[str, Any] = {
    "arch": "sm_90a",
    "debug": True,
    "lineinfo": True,
    "max_register_count": 32,
    "ptxas_options": "-O1",
    "ftz": True,
    "prec_div": False,
    "prec_sqrt": False,
    "fma": False,
    "split_compile": 2,
    "no_cache": True,
    "link_time_optimization": True,
    "time": "time.csv",
    "name": "other",
}


def link(code: str, **fields: Any) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numba_debug: cuda.core says that it ignores it
        return bytes(core.Program(code, "ptx", make_options(**fields)).compile("cubin").code)


def ptx_key(code: str, **fields: Any) -> bytes:
    return key(code=code, code_type="ptx", options=make_options(**fields))


@pytest.mark.parametrize("field", sorted(PTX_VALUES))
def test_an_option_that_the_linker_gets_changes_the_key(field: str, ptx_text: str) -> None:
    assert ptx_key(ptx_text, **{field: PTX_VALUES[field]}) != ptx_key(ptx_text)
    assert set(PTX_VALUES) | {"extra_sources"} == ptx.FIELDS


@pytest.mark.parametrize("field", sorted(set(CXX) - ptx.FIELDS))
def test_an_option_that_is_not_in_the_key_of_ptx_does_not_change_what_is_linked(field: str, ptx_text: str) -> None:
    changed = {field: CXX[field][1]}
    assert ptx_key(ptx_text, **changed) == ptx_key(ptx_text)
    assert link(ptx_text, **changed) == link(ptx_text)


def test_the_working_directory_does_not_change_what_is_linked(
    ptx_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = link(ptx_text, lineinfo=True), ptx_key(ptx_text, lineinfo=True)
    monkeypatch.chdir(tmp_path)
    assert (link(ptx_text, lineinfo=True), ptx_key(ptx_text, lineinfo=True)) == before


def test_name_expressions_change_the_key_only_for_cxx(ptx_text: str) -> None:
    assert key(code=ptx_text, code_type="ptx", name_expressions=["f"]) == ptx_key(ptx_text)


def nvvm_key(target_type: str = "ptx", code: str | bytes | bytearray = NVVM, **fields: Any) -> bytes:
    return key(code=code, code_type="nvvm", target_type=target_type, options=make_options(**fields))


def compile_nvvm(target_type: str, **fields: Any) -> bytes:
    return bytes(core.Program(NVVM, "nvvm", make_options(**fields)).compile(target_type).code)


@pytest.mark.parametrize(
    "fields",
    [
        {"arch": "sm_80"},
        {"name": "other"},
        {"ftz": True},
        {"prec_div": False},
        {"fma": False},
        {"device_code_optimize": False},
        {"debug": True},
        {"extra_sources": [("more", NVVM.replace("simple", "other"))]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_option_that_libnvvm_gets_changes_the_key(fields: dict[str, Any]) -> None:
    for target_type in ("ptx", "ltoir"):
        if compile_nvvm(target_type, **fields) != compile_nvvm(target_type):
            assert nvvm_key(target_type, **fields) != nvvm_key(target_type)
    assert nvvm_key(**fields) != nvvm_key()


def test_nvvm_code_is_the_same_as_str_bytes_and_bytearray() -> None:
    text = NVVM.encode()
    assert nvvm_key() == nvvm_key(code=text) == nvvm_key(code=bytearray(text))
    assert nvvm_key(extra_sources=[("a", NVVM)]) == nvvm_key(extra_sources=(("a", text),))
    assert nvvm_key(extra_sources=[("a", "b"), ("c", "d")]) != nvvm_key(extra_sources=[("c", "d"), ("a", "b")])


def test_libdevice_changes_the_key() -> None:
    plain, linked = (
        key(code=NVVM, code_type="nvvm", target_type="ptx", options=make_options(use_libdevice=used), extra_digest=b"d")
        for used in (None, True)
    )
    assert plain != linked


def test_an_option_that_libnvvm_lacks_is_the_error_that_compiling_gives() -> None:
    with pytest.raises(Exception, match="not supported by NVVM") as compiling:
        compile_nvvm("ptx", lineinfo=True)
    with pytest.raises(type(compiling.value), match="not supported by NVVM"):
        nvvm_key(lineinfo=True)


def test_the_code_generator_that_the_environment_picks_changes_the_key_of_nvvm(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_nvvm("ptx"), nvvm_key()
    monkeypatch.setenv("LIBNVVM_NVVM_VERSION", "nvvm-latest")
    changed = compile_nvvm("ptx"), nvvm_key()
    assert plain[0] != changed[0]
    assert plain[1] != changed[1]


# ---- compiler versions -----------------------------------------------------------------------------------------------


def test_each_compiler_is_known_by_version_and_build() -> None:
    assert len({versions.nvrtc(), versions.nvvm(), versions.linker()}) == 3


def test_a_compiler_without_a_version_has_no_key_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in: the real thing needs an installation without NVRTC.
    def missing() -> None:
        raise RuntimeError("no NVRTC here")

    before = key()
    versions.nvrtc.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(nvrtc, "nvrtcVersion", missing)
        with pytest.raises(UncacheableError, match="no NVRTC here"):
            key()
    assert key() == before


def test_another_version_of_nvrtc_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in: two NVRTC in one process cannot be had.
    before = key()
    versions.nvrtc.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(nvrtc, "nvrtcVersion", lambda: (nvrtc.nvrtcResult.NVRTC_SUCCESS, 12, 9))
        other = key()
    versions.nvrtc.cache_clear()
    assert other != before == key()


def test_the_key_sees_the_options_that_program_compiles_with(plain_cubin: bytes) -> None:
    assert core.Program(SOURCE, "c++", make_options()).compile("cubin").code == plain_cubin
