# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers.paths: what a text does with its path, as NVRTC reads it and not as it looks."""

from __future__ import annotations

import pytest

from lockcache.headers.paths import PathUse
from lockcache.headers.source import scan
from tests.limits import within

USED, PRINTED, NONE = PathUse.USED, PathUse.PRINTED, PathUse.NONE
USE = "static __device__ int f() { return sizeof(__FILE__); }\n"


def uses(text: str) -> PathUse:
    """Returns what a text does with its path; what is pasted of pieces is a use."""
    use = scan(text.encode()).paths
    if (PathUse.PASTES | PathUse.PIECES) in use:
        use |= USED
    return use & (USED | PRINTED)


@pytest.mark.parametrize(
    "text",
    [
        "int a;",
        "// __FILE__",
        "/* __FILE__ */ int a;",
        "int a; // don't say __FILE__",
        'const char *s = "//"; /* __builtin_FILE() */',
        "char c = '\"'; // __FILE__",
        "char c = '\\''; /* __FILE__ */",
        'const char *s = "\\\\"; // __FILE__',
        "#include <a/b.h> // __FILE__\n#define A 1 /* __FILE__ */",
        "/* __FILE__ and nobody closes it",
        "// __FI\\\nLE__",
        "int MY__FILE__, __FILE__S;",
        "static_assert(true); // THIS FILE",
        "#define P(a, b) a##b /* __FI */",
    ],
)
def test_a_text_that_names_no_path_outside_of_comments_uses_none(text: str) -> None:
    assert uses(text) == NONE


@pytest.mark.parametrize(
    "text",
    [
        "__FILE__",
        "int a = sizeof __FILE__;",
        "const char *s = __builtin_FILE();",
        "#define P(a, b) a##b\nP(__FI, LE__)",
        "#define P(a, b) a %:%: b\nP(_, _FILE__)",
        "#define P(a, b) a ??=??= b\nP(__FILE, __)",
        "#define P(a, b, c) a##b##c\nP(__, FI, LE__)",
        "#define P(a) __##a##__\nP(FILE)",
        "#define P(a, b) a##b\nP(__builtin, _FILE)()",
        "#define P(a, b) a##b\nP(__b, uiltin_FILE)()",
        "#define P(a, b, c) a##b##c\nP(__built, in_FI, LE)()",
        "__FI\\\nLE__",
        "__FI??/\nLE__",
        "// x ??/\n??/\n\n__FILE__",
        "#define S(x) #x\nS(__FILE__)",
        '_Pragma("x") __FILE__',
        "#include __FILE__",
        "#if __has_include(__FILE__)\n#endif",
        "cuda::std::source_location::current()",
    ],
)
def test_a_text_that_names_its_path_in_any_way_uses_it(text: str) -> None:
    assert USED in uses(text)


# What looks like the beginning of a comment is none: each was a wrong hit, or might be one of another standard.
@pytest.mark.parametrize(
    "text",
    [
        'auto c = L\'"\'; auto s = "/*";\n' + USE + "/* */",
        'auto c = u8\'"\' + sizeof("/*");\n' + USE + "/* */",
        'auto r = R"(")" "/*";\n' + USE + "/* */",
        'auto r = u8R"x(")x" "/*";\n' + USE + "/* */",
        "auto n = 1'0; auto s = \"/*\"; auto m = 1'0;\n" + USE + "/* */",
        "#define X 1.'0 \"/*\" '\n" + USE + "/* */",
        "#define X 1e+'0 \"/*\" '\n" + USE + "/* */",
        '#if 0\n "/* x\n#endif\n' + USE + "/* */",
        "#if 0\n 'tis /* x\n#endif\n" + USE + "/* */",
        "#if __has_include(<a/*b>)\n#endif\n" + USE + "/* */",
        '#include "a\\" // "/*\n' + USE + "/* */",
        '%:include "a\\" // "/*\n' + USE + "/* */",
        '??=include "a\\" // "/*\n' + USE + "/* */",
        "#define H(x) __has_include(x)\n#if H(<a//b>) && H(__FILE__)\n#endif",
    ],
)
def test_what_only_looks_like_a_comment_hides_nothing(text: str) -> None:
    assert USED in uses(text)


@pytest.mark.parametrize("text", ["assert(a);", "#define CHECK(x) assert(x)", "// assert(a)"])
def test_an_assertion_prints_its_path(text: str) -> None:
    assert uses(text) == PRINTED


@pytest.mark.parametrize(
    "text",
    [
        "#define __assertfail(a, b, ...) (q = sizeof(b))\nassert(a);",
        "namespace n { template <int N> constexpr int __assertfail(const char *, const char (&)[N]); }",
        "#define __assert_fail(a, b) sizeof(b)\n__assert_fail(1, __FILE__)",
        "#undef __ASSERT_STR_HELPER",
    ],
)
def test_a_hand_in_the_function_that_an_assertion_calls_is_a_use(text: str) -> None:
    assert USED in uses(text)


CCCL = "#if defined(_CCCL_IMPLICIT_SYSTEM_HEADER_GCC)\n#endif\n"


@pytest.mark.parametrize(
    "text",
    [
        "#define F(e, message) (e) ? (void) 0 : __assertfail(message, __FILE__, __LINE__, __func__, sizeof(char))",
        "#  define D(e) CUB_NS_QUALIFIER::Debug((cudaError_t) (e), __FILE__, __LINE__)",
        '#define W(m) _CCCL_PRAGMA(message(__FILE__ ":" _CCCL_TO_STRING(__LINE__) ": warning: " #m))',
    ],
)
def test_headers_of_cccl_print_as_the_list_says_and_no_other_header_does(text: str) -> None:
    assert uses(CCCL + text) == PRINTED
    assert USED in uses(text)
    assert USED in uses(CCCL + text + "\n" + USE)


def test_a_mark_in_a_comment_makes_no_header_one_of_cccl() -> None:
    text = "#  define D(e) CUB_NS_QUALIFIER::Debug((cudaError_t) (e), __FILE__, __LINE__)"
    assert USED in uses("// _CCCL_IMPLICIT_SYSTEM_HEADER\n" + text)


# Each is repeated until the text has 128 KiB, behind a word that makes the text be read.
REPEATED = [
    "/*", "/*\n", "*/", "//", "// \n", '"', '"\n', "'", "''", '""', "\\", '\\"', '"\\', "x'", 'R"', "e+", "e+'",
    "<", "< ", "</", "<//", "#<", "#</ ", "#\n", " ", "#define __FILE__\n", "__FILE__", "__FI", "FILE ", "FI", "_FILE",
    "__bu", "__builtin", "assert", "__assertfail(", "__assertfail(message,  ", "Debug((cudaError_t) (e), ", "message(",
    "const  ", "class source_location ", "##", "_",
]  # fmt: skip


@pytest.mark.slow
def test_any_text_is_read_in_linear_time() -> None:
    script = "import sys; from lockcache.headers.paths import scan; size = 1 << 17\n"
    script += "for text in map(str.encode, sys.argv[1:]):\n"
    script += " for front in (b'__FILE__ ## FI _CCCL_IMPLICIT_SYSTEM_HEADER ', b'#__FILE__\\n'):\n"
    script += "  scan(front + text * (size // len(text))); scan(front + text * (size // len(text)) + b'*/ x\\n')"
    within(40, script, *REPEATED)
