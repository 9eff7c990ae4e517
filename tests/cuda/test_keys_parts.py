# SPDX-License-Identifier: Apache-2.0
"""The parts of keys: whatever single thing changes a key, with each compiler, is the part that is named."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

core = pytest.importorskip("cuda.core")
pytest.importorskip("cuda.bindings.nvrtc")

from lockcache import FileStreamProgramCache, headers  # noqa: E402
from lockcache.cuda import Program  # noqa: E402
from lockcache.explain import Stated, differences, reasons_of, statement_of  # noqa: E402
from lockcache.keys import versions  # noqa: E402
from tests.cli.command import run  # noqa: E402
from tests.cuda.keys import CHANGES, CXX, EXTERNAL, NVVM, SEEN, key, make_options  # noqa: E402
from tests.started_with import start_with  # noqa: E402

pytestmark = pytest.mark.cuda

PTX = ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry scale() { ret; }\n"

#: What an option is called as a part, where that is not how NVRTC calls it.
RENAMED = {"define-macro": "define FACTOR", "undefine-macro": "undefine FACTOR", "include-path": "include path",
           "pre-include": "pre-include"}  # fmt: skip


def stated(**changes: Any) -> Stated:
    found = statement_of(key(**changes))
    assert found is not None
    return found


def named(one: Stated, other: Stated) -> list[str]:
    found = [difference.name for difference in differences(one.parts, other.parts)]
    assert sorted(found) == sorted(difference.name for difference in differences(other.parts, one.parts))
    return found


@pytest.mark.parametrize("target_type", ["cubin", "ptx", "ltoir"])
@pytest.mark.parametrize("field", [field for field, (sort, _) in CXX.items() if sort in (CHANGES, SEEN, EXTERNAL)])
def test_each_option_of_nvrtc_is_named_as_nvrtc_calls_it(field: str, target_type: str) -> None:
    changed = make_options(**{field: CXX[field][1]})
    given = {"target_type": target_type, "extra_digest": b"d"}
    rendered = (set(each.as_bytes("nvrtc", target_type)) for each in (make_options(), changed))
    before, after = rendered
    flags = {option.decode().lstrip("-").partition("=")[0] for option in before ^ after}
    expected = {RENAMED.get(flag, f"option {flag}") for flag in flags} or {field}
    assert set(named(stated(**given), stated(**given, options=changed))) == expected


_PTX_FIELDS = {"debug": True, "lineinfo": True, "link_time_optimization": True, "no_cache": True, "ftz": False,
               "prec_div": True, "prec_sqrt": False, "fma": True, "max_register_count": 32, "split_compile": 2,
               "ptxas_options": ["-v"], "time": "x", "arch": "sm_100", "name": "other"}  # fmt: skip


@pytest.mark.parametrize("field", _PTX_FIELDS)
def test_each_option_of_the_linker_is_named_as_cuda_core_calls_it(field: str) -> None:
    ptx = {"code": PTX, "code_type": "ptx"}
    changed = stated(**ptx, options=make_options(**{field: _PTX_FIELDS[field]}))
    assert named(stated(**ptx), changed) == ["name" if field == "name" else f"option {field}"]
    assert changed.label == ("other" if field == "name" else "k.cu")


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"arch": "sm_80"}, "option arch"),
        ({"ftz": True}, "option ftz"),
        ({"fma": False}, "option fma"),
        ({"debug": True}, "option g"),
        ({"extra_sources": [("a", NVVM), ("b", "; x")]}, "module b"),
        ({"extra_sources": [("a", NVVM + ";")]}, "module a"),
        ({"use_libdevice": True}, "libdevice"),
    ],
)
def test_each_option_of_nvvm_is_named(fields: dict[str, Any], expected: str) -> None:
    nvvm = {"code": NVVM, "code_type": "nvvm", "target_type": "ptx", "extra_digest": b"d"}
    plain = stated(**nvvm, options=make_options(extra_sources=[("a", NVVM)]))
    changed = stated(**nvvm, options=make_options(**{"extra_sources": [("a", NVVM)], **fields}))
    assert named(plain, changed) == [expected]


def test_the_order_of_modules_is_named() -> None:
    nvvm = {"code": NVVM, "code_type": "nvvm", "target_type": "ptx"}
    one, other = ([("a", "x"), ("b", "y")][::step] for step in (1, -1))
    found = [stated(**nvvm, options=make_options(extra_sources=each)) for each in (one, other)]
    assert named(*found) == ["order of modules"]


@dataclasses.dataclass
class Call:
    """A call for a key, to be changed in one place."""

    macros: list[tuple[str, str]]
    fields: dict[str, Any]
    arguments: dict[str, Any]
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    folder: str = "."

    def state(self) -> Stated:
        here = os.getcwd()
        with pytest.MonkeyPatch.context() as patched:
            start_with(patched, **self.variables)
            patched.chdir(os.path.join(here, self.folder))
            return stated(options=make_options(**self.fields, define_macro=self.macros), **self.arguments)


_FIRST = "define FIRST"
_ELF_BUILDER = "FINALIZER_USE_LEGACY_ELF_BUILDER"

#: What changes one thing of a call, and what that is called.
CHANGES_OF_A_CALL: list[tuple[str, Callable[[Call], object]]] = [
    (_FIRST, lambda call: call.macros.__setitem__(0, ("FIRST", "changed"))),
    (_FIRST, lambda call: call.macros.pop(0)),
    ("define NEW", lambda call: call.macros.append(("NEW", "1"))),
    ("order of options", lambda call: call.macros.reverse()),
    ("include path", lambda call: call.fields["include_path"].reverse()),
    ("option arch", lambda call: call.fields.update(arch="sm_100")),
    ("option generate-line-info", lambda call: call.fields.update(lineinfo=None)),
    ("name", lambda call: call.fields.update(name="other.cu")),
    ("code", lambda call: call.arguments.update(code="// another")),
    ("target", lambda call: call.arguments.update(target_type="ltoir")),
    ("name expressions", lambda call: call.arguments["name_expressions"].append("another")),
    ("extra digest", lambda call: call.arguments.update(extra_digest=b"another")),
    (f"variable {_ELF_BUILDER}", lambda call: call.variables.update({_ELF_BUILDER: "1"})),
    ("working directory", lambda call: setattr(call, "folder", "/")),
]


@settings(deadline=None, database=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from("ABCDEFGH"), st.sampled_from(["1", "2", "x y", "", "a(b)"]), min_size=1),
    st.lists(st.sampled_from(["f<int>", "g", b"g"]), max_size=3),
    st.sampled_from(CHANGES_OF_A_CALL),
)
def test_any_single_change_of_a_program_is_the_part_that_is_named(
    macros: dict[str, str], names: list[Any], change: tuple[str, Callable[[Call], object]]
) -> None:
    call = Call(
        [("FIRST", "1"), *macros.items()],
        {"include_path": ["/a", "/b"], "lineinfo": True},
        {"name_expressions": names, "extra_digest": b"d"},
    )
    before = call.state()
    expected, make = change
    make(call)
    assert named(before, call.state()) == [expected]


def test_another_build_of_the_compiler_is_named_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in: two NVRTC in one process cannot be had.
    before = stated()
    with monkeypatch.context() as patched:
        patched.setattr(versions, "_loaded", None)
        patched.setattr(versions, "fingerprint", lambda path: b"another build")
        changed = stated(code="// not remembered\n")
    [code, compiler] = differences(before.parts, changed.parts)
    assert (code.name, compiler.name) == ("code", "compiler")
    assert compiler.mine
    assert compiler.other
    assert compiler.mine.value.startswith("NVRTC 13.")
    assert compiler.mine.value != compiler.other.value


def test_a_header_that_changed_is_named(tmp_path: Path) -> None:
    for name in ("x.h", "y.h"):
        (tmp_path / name).write_text("// one\n")
    code = '#include "x.h"\n#include "y.h"\n'

    def with_headers() -> Stated:
        digest = headers.fingerprint(code, [tmp_path])
        return stated(code=code, options=make_options(include_path=str(tmp_path)), extra_digest=digest)

    before = with_headers()
    (tmp_path / "y.h").write_text("// two, and longer\n")
    assert named(before, with_headers()) == ["header y.h"]


_CODE = '#include "x.h"\nextern "C" __global__ void k(int *p) { *p = f(p); }'
_PLAIN = "__device__ inline int f(int *p) { return 1; }"


@pytest.mark.parametrize(
    "header, fields, target_type, reason",
    [
        (_PLAIN, {"lineinfo": True}, "cubin", "lineinfo"),
        (_PLAIN, {"debug": True}, "cubin", "debug"),
        (_PLAIN, {"relocatable_device_code": True, "link_time_optimization": True}, "ltoir",
         "link_time_optimization and LTO-IR"),
        ("__device__ inline int f(int *p) { return sizeof(__FILE__); }", {}, "cubin", "__FILE__ or the like in a text"),
        ("__device__ inline int f(int *p) { assert(*p); return 1; }", {}, "cubin",
         "a path that the output prints"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["include_path", "pre_include"])
def test_why_says_what_takes_the_paths_of_headers_into_a_key(
    field: str, header: str, fields: dict[str, Any], target_type: str, reason: str, cache_path: Path, tmp_path: Path
) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for place in ("one", "two"):
            (tmp_path / place).mkdir()
            (tmp_path / place / "x.h").write_text(header)
            given = str(tmp_path / place / ("x.h" if field == "pre_include" else ""))
            code = _CODE if field == "include_path" else _CODE.partition("\n")[2]
            options = core.ProgramOptions(arch="sm_90", **{field: given}, **fields)
            Program(code, "c++", options).compile(target_type, cache=cache)
        assert cache.stats().puts == 2
    named = field.replace("_path", " path").replace("pre_", "pre-")
    assert f"    {named}, because of {reason}  " in run("why", cache_path).stdout
    [found] = json.loads(run("why", "--json", cache_path).stdout)["misses"][0]["nearest"]
    assert [each["part"] for each in found["differences"]] == [named]
    assert " and ".join(found["differences"][0]["because_of"]) == reason


def test_paths_that_line_information_alone_takes_in_are_not_named_next_to_it(cache_path: Path, tmp_path: Path) -> None:
    (tmp_path / "x.h").write_text(_PLAIN)
    with FileStreamProgramCache(cache_path) as cache:
        for lineinfo in (None, True):
            options = core.ProgramOptions(arch="sm_90", include_path=str(tmp_path), lineinfo=lineinfo)
            Program(_CODE, "c++", options).compile("cubin", cache=cache)
    [found] = json.loads(run("why", "--json", cache_path).stdout)["misses"][0]["nearest"]
    assert [each["part"] for each in found["differences"]] == ["option generate-line-info"]


def test_with_an_extra_digest_the_paths_are_in_the_key_for_that() -> None:
    one, other = (stated(options=make_options(include_path=path), extra_digest=b"d") for path in ("/a", "/b"))
    [difference] = differences(one.parts, other.parts)
    assert reasons_of(difference.name, one.parts) == ["extra_digest"]


def test_no_part_holds_source_or_a_secret() -> None:
    code = '__device__ int password = 5; extern "C" __global__ void kernel_k() { /* the secret sauce */ }'
    found = stated(code=code, options=make_options(name=None, define_macro=[("TOKEN", "hunter2"), ("B", "x[i] = 1;")]))
    words = " ".join(text for part in found.parts for text in part)
    assert not any(word in words for word in ("sauce", "hunter2", "x[i]", "__device__", "void"))
    assert found.label == "kernel_k"


@pytest.mark.parametrize(
    "fields, changes, label",
    [
        ({"name": "gemm.cu"}, {}, "gemm.cu"),
        ({"name": None}, {"name_expressions": ["f<int>", "g"]}, "f<int>, g"),
        ({"name": None}, {"code": 'extern "C" __global__ void __launch_bounds__(256, 2) k(int a) {}'}, "k"),
        ({"name": None}, {"code": "template <class T> __global__ __attribute__((x)) void f(T a);"}, "f"),
        (
            {"name": None},
            {"code": "".join(f"__global__ void k{n}() {{}}\n" for n in range(5))},
            "k0, k1, k2 and 2 more",
        ),
        ({"name": None}, {"code": "__device__ int x;"}, "default_program"),
        ({"name": None}, {"code": PTX, "code_type": "ptx"}, "scale"),
        ({"name": None}, {"code": NVVM, "code_type": "nvvm", "target_type": "ptx"}, "simple"),
    ],
)
def test_a_program_is_called_by_its_name_its_expressions_or_its_kernels(
    fields: dict[str, Any], changes: dict[str, Any], label: str
) -> None:
    assert stated(**changes, options=make_options(**fields)).label == label
