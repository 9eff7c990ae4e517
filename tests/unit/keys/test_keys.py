"""lockcache.keys where no compiler is needed: the framing, the arguments, the source scan, the refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from lockcache.errors import LockcacheError, UncacheableError
from lockcache.keys import hashing, make_program_cache_key, scan, versions
from tests.limits import within

SOURCE = 'extern "C" __global__ void k(int *a) { *a = 1; }'

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def options(**fields: Any) -> Any:
    return pytest.importorskip("cuda.core").ProgramOptions(**{"arch": "sm_90", **fields})


def make(**changes: Any) -> bytes:
    arguments = {"code": SOURCE, "code_type": "c++", "target_type": "cubin", **changes}
    return make_program_cache_key(**{"options": None, **arguments} if "options" in changes else arguments)


def key(**changes: Any) -> bytes:
    return make(**{"options": options(), **changes})


def test_a_name_that_is_a_str_of_another_class_is_the_same_name() -> None:
    class Kind(str, Enum):
        PTX = "ptx"

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    assert hashing.encode([Text("ptx")]) == hashing.encode(["ptx"]) == hashing.encode([Kind.PTX])
    with pytest.raises(TypeError, match="cannot put a set into a cache key"):
        hashing.encode({1})


@pytest.mark.cuda
@pytest.mark.parametrize("field, wrong", [("arch", 90), ("name", b"kernel.cu")])
def test_an_option_of_another_type_is_refused_by_its_name(field: str, wrong: object) -> None:
    given = options()
    setattr(given, field, wrong)
    with pytest.raises(TypeError, match=f"options.{field} must be a str"):
        make(options=given)


def test_a_macro_that_pastes_a_question_about_a_header_reads_files() -> None:
    code = b"#define ASK(a, b) a ## b\n#if ASK(__has_incl, ude)(<x.h>)\n#endif"
    assert "pastes" in scan.scan(code).file


def test_what_was_found_in_a_source_is_the_same_when_the_memory_of_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_SEEN_LIMIT", 2)
    monkeypatch.setattr(scan, "_seen", {})
    sources = [b'#include "%d.h"' % number for number in range(5)]
    for source in sources * 2:
        assert scan.scan_source(source, source) == scan.scan(source)
    assert len(scan._seen) <= 2


# ---- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(PLAIN, PLAIN)
@example(["ab", "c"], ["a", "bc"])
@example(["asb", "c"], ["a", "bsc"])
@example([b"ayb", b"c"], [b"a", b"byc"])
@example([["a"], "b"], [["a", "b"]])
@example(["a"], [b"a"])
@example([1], [True])
@example([0], [None])
@example([], [[]])
@example("", b"")
@example(["1"], [1])
def test_two_values_have_the_same_bytes_only_if_they_are_the_same_value(one: object, other: object) -> None:
    # repr tells 1 from True and "a" from b"a", which == does not.
    assert (hashing.encode(one) == hashing.encode(other)) == (repr(one) == repr(other))


def test_a_list_and_a_tuple_of_the_same_values_have_the_same_bytes() -> None:
    assert hashing.encode(["a", ["b"]]) == hashing.encode(("a", ("b",)))


def test_a_value_without_a_stable_form_cannot_enter_a_key() -> None:
    with pytest.raises(TypeError, match="object"):
        hashing.encode([object()])


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_importing_keys_loads_nothing_of_cuda() -> None:
    script = "import sys, lockcache.keys; sys.exit(any(name.split('.')[0] == 'cuda' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code_type": 5}, "code_type.*int"),
        ({"code_type": None}, "code_type.*NoneType"),
        ({"target_type": b"cubin"}, "target_type.*bytes"),
        ({"options": None}, "ProgramOptions.*NoneType"),
        ({"options": {"arch": "sm_90"}}, "ProgramOptions.*dict"),
    ],
)
def test_a_wrong_type_is_named_even_where_cuda_core_is_absent(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(**{"options": None, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code_type": "cuda"}, r"c\+\+, ptx, nvvm.*'cuda'"),
        ({"target_type": "exe"}, "ptx, cubin, ltoir.*'exe'"),
        ({"code_type": "ptx", "target_type": "ltoir"}, "'ltoir'.*'ptx'.*cubin, ptx"),
        ({"code_type": "nvvm", "target_type": "cubin"}, "'cubin'.*'nvvm'.*ptx, ltoir"),
    ],
)
def test_an_unknown_type_or_pair_is_refused_with_a_list_of_what_is_accepted(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**{"options": None, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code": b"x"}, "code must be a str.*bytes"),
        ({"code": b"x", "code_type": "ptx"}, "code must be a str.*bytes"),
        ({"code": 5, "code_type": "nvvm", "target_type": "ptx"}, "code must be str, bytes or bytearray.*int"),
        ({"name_expressions": "abc"}, "name_expressions.*str 'abc'"),
        ({"name_expressions": b"abc"}, "name_expressions.*bytes"),
        ({"name_expressions": 5}, "name_expressions.*int"),
        ({"name_expressions": None}, "name_expressions.*NoneType"),
        ({"name_expressions": ["f", 5]}, r"name_expressions\[1\] must be a str or bytes, got int 5"),
        ({"name_expressions": (bytearray(b"f"),)}, r"name_expressions\[0\] must be.*bytearray"),
        ({"extra_digest": 5}, "extra_digest.*int 5"),
        ({"extra_digest": "digest"}, "extra_digest.*str 'digest'"),
        ({"extra_digest": [1]}, "extra_digest.*list"),
    ],
)
def test_an_argument_of_the_wrong_type_is_a_type_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        key(**changes)


@pytest.mark.parametrize(
    "field, value",
    [
        ("include_path", 5),
        ("include_path", [5]),
        ("include_path", Path("/usr/include")),
        ("include_path", b"/usr/include"),
        ("pre_include", 5),
        ("pre_include", {"a.h"}),
        ("undefine_macro", 5),
        ("ptxas_options", ("-v", 5)),
        ("define_macro", 5),
        ("define_macro", {"A": "1"}),
        ("diag_suppress", {1}),
        ("diag_error", 1.5),
        ("diag_warn", [None]),
    ],
)
@pytest.mark.parametrize("extra_digest", [None, b"headers"])
def test_an_option_that_cuda_core_would_drop_for_its_type_is_a_type_error(
    field: str, value: object, extra_digest: bytes | None
) -> None:
    with pytest.raises(TypeError, match=rf"options\.{field}(\[\d\])? must be"):
        key(options=options(**{field: value}), extra_digest=extra_digest)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"include_path": ["/a", 5]}, r"options\.include_path\[1\] must be a str; got int 5"),
        ({"diag_warn": (1, None)}, r"options\.diag_warn\[1\] must be an int; got NoneType None"),
        ({"define_macro": ["A", 5]}, r"options\.define_macro\[1\] must be a str or a \(name, value\) tuple.*int 5"),
        ({"define_macro": ["A", ("B", 5)]}, r"options\.define_macro\[1\]\[1\] must be a str; got int 5"),
        ({"define_macro": ("A", 5)}, r"options\.define_macro\[1\] must be a str; got int 5"),
        ({"define_macro": ("A", "B", "C")}, r"options\.define_macro must be .*tuple"),
    ],
)
def test_an_item_of_an_option_is_named_by_its_place(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        key(options=options(**fields))


def test_an_option_of_the_other_paths_is_named_too() -> None:
    with pytest.raises(TypeError, match=r"options\.max_register_count must be an int; got set \{1\}"):
        key(code_type="ptx", options=options(max_register_count={1}))
    # cuda.core looks at them when they are given, not when they are set.
    given = options()
    for sources, named in (
        ([("a", "b"), 5], r"\[1\] must be a \(name, source\) pair.*got 5"),
        ([("a", 5)], r"\[0\]\[1\], the source of 'a', must be.*int 5"),
        ({"a": "b"}, " must be a list or tuple .*got dict"),
    ):
        given.extra_sources = sources
        with pytest.raises(TypeError, match=r"options\.extra_sources" + named):
            key(code_type="nvvm", target_type="ptx", options=given)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"name_expressions": ["f", "\udc80"]}, r"name_expressions\[1\] cannot be written as UTF-8"),
        ({"fields": {"name": "\udc80"}}, r"options\.name cannot be written as UTF-8"),
        ({"fields": {"define_macro": ["A", "\udc80"]}}, r"options\.define_macro cannot be written as UTF-8"),
        ({"fields": {"name": "\udc80"}, "code_type": "ptx"}, r"options\.name cannot be written as UTF-8"),
    ],
)
def test_text_that_is_not_unicode_is_named(changes: dict[str, Any], named: str) -> None:
    given = options()
    for field, value in changes.pop("fields", {}).items():
        setattr(given, field, value)  # as options it would be cuda.core's error
    with pytest.raises(ValueError, match=named):
        key(options=given, **changes)


def test_options_without_an_arch_have_no_key() -> None:
    unset = options()
    unset.arch = None
    with pytest.raises(UncacheableError, match="arch='sm_90'"):
        key(options=unset)


def test_code_that_is_not_unicode_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="code cannot be written as UTF-8"):
        key(code="\udc80")


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field, value",
    [
        ("create_pch", "x.pch"),
        ("create_pch", False),
        ("time", "x.csv"),
        ("time", ""),
        ("time", False),
        ("fdevice_time_trace", "trace.json"),
    ],
)
def test_an_option_with_a_side_effect_is_refused_even_with_an_extra_digest(field: str, value: object) -> None:
    for extra_digest in (None, b"everything"):
        with pytest.raises(UncacheableError, match=rf"options\.{field}.*hit does not compile"):
            key(options=options(**{field: value}), extra_digest=extra_digest)


@pytest.mark.parametrize(
    "fields",
    [
        {"include_path": "/usr/include"},
        {"include_path": ["/a", "/b"]},
        {"include_path": ""},
        {"pre_include": "x.h"},
        {"pch": True},
        {"use_pch": "x.pch"},
        {"pch_dir": "/tmp"},
        {"name": "kernels/k.cu"},
        {"name": "/abs/k.cu"},
        {"name": "kernels\\k.cu"},
        {"name": "k/", "no_source_include": True},
        {"ptxas_options": "--options-file=o"},
        {"ptxas_options": ["-v", "-optf", "o"]},
        {"ptxas_options": "--apply-controls=o"},
        {"define_macro": "T=__TIME__"},
        {"define_macro": ("H", '__has_include("x.h")')},
    ],
    ids=str,
)
def test_an_option_that_reads_files_is_refused_without_an_extra_digest(fields: dict[str, Any]) -> None:
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(options=options(**fields))


def test_a_refusal_names_every_option_that_it_is_for_and_what_to_do_about_each() -> None:
    given = options(
        create_pch="x",
        time=False,
        include_path=["/a"],
        pch=True,
        name="a/b.cu",
        ptxas_options=["-optf", "-v", "--apply-controls=o"],
        define_macro="T=__TIME__",
        extra_sources=[("a", "b")],
    )
    given.arch = None
    with pytest.raises(UncacheableError) as caught:
        key(options=given, code='#include "x.h"\n#include </usr/y.h>\nchar when[] = __DATE__;')
    said = str(caught.value)
    fields = (
        "create_pch",
        "time",
        "include_path",
        "pch",
        "name",
        "ptxas_options",
        "define_macro",
        "extra_sources",
        "arch",
    )
    found = [f"options.{field}" for field in fields if field != "pch"]
    found += ["options.pch True", "'-optf'", "'--apply-controls=o'", "__DATE__ in code", "x.h", "/usr/y.h"]
    assert [each for each in found if each not in said] == []
    unset = "Unset options.create_pch and options.time and options.extra_sources, or compile without a cache."
    assert unset in said
    assert said.count("ass extra_digest") == 1
    assert "or use a name without one, or set no_source_include" in said
    # With a digest, what is only read is none of it.
    with pytest.raises(UncacheableError, match=r"^(?!.*include_path).*create_pch.*time.*extra_sources.*arch"):
        key(options=given, extra_digest=b"all that it reads")


@pytest.mark.parametrize("code_type", ["ptx", "nvvm"])
def test_a_refusal_of_the_other_paths_names_every_option_too(code_type: str) -> None:
    given = options(extra_sources=[("a", "b")], ptxas_options=["-optf", "--options-file=o"], use_libdevice=True)
    given.arch = None
    named = {"ptx": ("extra_sources", "arch", "-optf", "--options-file"), "nvvm": ("use_libdevice", "arch")}[code_type]
    with pytest.raises(UncacheableError) as caught:
        key(code_type=code_type, target_type="ptx", options=given)
    assert [each for each in named if each not in str(caught.value)] == []


@pytest.mark.parametrize("code_type", ["c++", "ptx"])
def test_extra_sources_are_refused_where_program_refuses_them(code_type: str) -> None:
    with pytest.raises(UncacheableError, match="extra_sources"):
        key(code_type=code_type, options=options(extra_sources=[("a", "b")]))


@pytest.mark.parametrize("sources", ["ab", [5], [("a",)], [(5, "a")], [("a", 5)]], ids=str)
def test_extra_sources_of_the_wrong_shape_are_a_type_error(sources: object) -> None:
    changed = options()
    changed.extra_sources = sources  # cuda.core looks at it only when it is given to the constructor
    with pytest.raises(TypeError, match="extra_sources"):
        key(code_type="nvvm", target_type="ptx", options=changed)


def test_libdevice_is_refused_without_an_extra_digest() -> None:
    with pytest.raises(UncacheableError, match=r"use_libdevice.*extra_digest"):
        key(code_type="nvvm", target_type="ptx", options=options(use_libdevice=True))


def test_a_refusal_is_a_value_error_and_a_lockcache_error() -> None:
    assert issubclass(UncacheableError, ValueError)
    assert issubclass(UncacheableError, LockcacheError)


# ---- what code reads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        '#include "x.h"',
        '  #  include "x.h"',
        '%:include "x.h"',
        '??=include "x.h"',
        '#inc\\\nlude "x.h"',
        '#inc\\\r\nlude "x.h"',
        '#inc??/\nlude "x.h"',
        '/* a */ # /* b\n c */ include "x.h"',
        '#/\\\n* a */include "x.h"',
        '/* a\n b */ #include "x.h"',
        'int a; // b\n\v#include "x.h"',
        '// b \\ \n#include "x.h"',
        '#include_next "x.h"',
        '#if __has_include("x.h")\n#endif',
        '#embed "x.h"',
    ],
)
def test_a_quoted_include_is_found_however_it_is_written(code: str) -> None:
    assert scan.scan(code.encode()).beside


@pytest.mark.parametrize(
    "code",
    [
        "#include </usr/x.h>",
        "#include <../x.h>",
        "#include <C:/x.h>",
        '#include "/usr/x.h"',
        "#include HEADER",
        "#define ASK __has_include",
        "#if __has_include(HEADER)\n#endif",
    ],
)
def test_an_include_that_may_lead_anywhere_is_found(code: str) -> None:
    assert scan.scan(code.encode()).file


@pytest.mark.parametrize("word", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
def test_code_that_reads_the_clock_is_found(word: str) -> None:
    assert scan.scan(f"__device__ char c[] = {word};".encode()).clock == word
    assert scan.scan(f"__device__ char c[] = {word[:4]}\\\n{word[4:]};".encode()).clock == word


@pytest.mark.parametrize(
    "code",
    [
        SOURCE,
        '// #include "x.h"\nint includes; int embedded; char *important = "#include";',
        "#include <cuda_fp16.h>\n#include <cuda/std/type_traits>",
        "#ifdef __has_include\n#if __has_include(<cuda_fp16.h>)\n#endif\n#endif",
        "#if defined(__has_include) && __has_include(<cuda_fp16.h>)\n#endif",
        "#define A \\\n  1\n#pragma unroll",
    ],
)
def test_code_that_reads_nothing_of_its_own_is_let_through(code: str) -> None:
    assert scan.scan(code.encode()) == ("", "", "")


@settings(deadline=None)
@given(st.text('/*#\\\n in<"c', max_size=4000))
def test_no_code_makes_the_scan_fail(code: str) -> None:
    scan.scan(("include" + code).encode())


@pytest.mark.slow
def test_any_code_is_scanned_in_linear_time() -> None:
    # The first took until the end of the world once; most of the others half a minute for each 64 KiB.
    repeated = [
        "/**/",
        "/*",
        "/*\n",
        "\n#/*a",
        "*/#/*\n",
        "*/#/**/",
        "*/#include<",
        '*/#include"',
        "\ndefined ",
        "__has_include",
    ]
    script = "import sys; from lockcache.keys.scan import scan; size = 1 << 17\n"
    script += "for text in map(str.encode, sys.argv[1:]):\n"
    script += "    scan(b'include' + text * (size // len(text)))\n"
    script += "    scan(b'include\\n#' + text * (size // len(text)) + b'*/ # x')\n"
    script += "scan(b'include defined' + b' ' * size + b'x')"
    within(40, script, *repeated)


@pytest.mark.parametrize("gap", ["/**/" * 9, "/*" + "x" * 1000 + "*/", "/*\n*/ " * 5])
def test_an_include_behind_more_comments_than_anybody_writes_may_be_any_file(gap: str) -> None:
    assert scan.scan(f"#{gap}include <x.h>".encode()).file
    assert scan.scan(f"/* */ {gap} #include </x.h>".encode()).file
    assert scan.scan(f"# /* {'x' * 100} */ /*\n**/ include <x.h>".encode()) == ("", "", "")
    assert scan.scan(b"include\n# /* x */ define A\n#/* x *//**/ if 1") == ("", "", "")


@pytest.mark.parametrize("code", ['#include "x.h"', "#include </usr/x.h>", "char c[] = __DATE__;", "#include HEADER"])
def test_code_that_reads_something_else_is_refused_without_an_extra_digest(code: str) -> None:
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(code=code)


# ---- which compiler --------------------------------------------------------------------------------------------------


def test_a_library_is_known_by_its_content_not_by_its_path_or_time(tmp_path: Path) -> None:
    library = tmp_path / "lib.so.1"
    library.write_bytes(os.urandom(300_000))
    copy = tmp_path / "elsewhere.so"
    shutil.copyfile(library, copy)
    os.utime(copy, (1, 1))
    assert versions.fingerprint(str(library)) == versions.fingerprint(str(copy))


@pytest.mark.parametrize("offset", [0, 0x270, 300_000 - 40, 300_000])
def test_another_build_of_a_library_is_another_library(tmp_path: Path, offset: int) -> None:
    content = bytearray(os.urandom(300_000))
    library = tmp_path / "lib.so.1"
    library.write_bytes(content)
    before = versions.fingerprint(str(library))
    content[offset : offset + 1] = bytes([content[offset] ^ 1]) if offset < len(content) else b"x"
    library.write_bytes(content)
    assert versions.fingerprint(str(library)) != before


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 100_000])
def test_a_library_of_any_size_has_a_fingerprint(tmp_path: Path, size: int) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(bytes(size))
    assert len(versions.fingerprint(str(library))) == 32
