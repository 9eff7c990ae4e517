# SPDX-License-Identifier: Apache-2.0
"""The scan of a source: what it can make a compiler read, and whether it reads the clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from lockcache.keys import scan
from tests.limits import within
from tests.unit.keys.material import SOURCE


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
