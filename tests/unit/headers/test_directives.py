# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: which directives count, however they are written."""

from __future__ import annotations

import pytest

from tests.unit.headers.trees import Tree, changes, rewrites


@pytest.mark.parametrize(
    "code",
    [
        '#include "h.h"',
        '#include"h.h"',
        "#include <h.h>",
        '\t#\v include\f"h.h" garbage',
        '#if 0\n#include "h.h"\n#endif',
        '#ifdef NEVER\n#else\n#include "h.h"\n#endif',
        '/**/#/**/include/**/"h.h"',
        '/*\n*/#include "h.h"',
        '#include/*\n*/"h.h"',
        '#inc\\\nlude "h.h"',
        '#inc\\\r\nlude "h.h"',
        '#include "h\\\n.h"',
        '/\\\n/ a comment\n#include "h.h"',
        '%:include "h.h"',
        '??=include "h.h"',
        '#inc??/\nlude "h.h"',
        '// ??/\n#include "h.h"',
        '// #include /*\n#include "h.h"\n/* */',
        '// # /*\n#include "h.h"\n// */ include "nothing.h"',
        '// __has_include /*\n#include "h.h"\n// */ (',
        '"/*"\n#include "h.h"\n"*/"',
        'const char *s = "http://";\n#include "h.h"',
        '#include_next "h.h"',
        '#include "h.h/"',
        '#include "./h.h"',
        '#include "sub/../h.h"',
        '#include "sub//..//h.h"',
        '#import "h.h"',
        '#embed "h.h"',
        "int a;\r\n#include <h.h>\r\n",
    ],
)
def test_a_directive_counts_however_it_is_written(tree: Tree, code: str) -> None:
    tree({"h.h": "", "sub/x": ""})
    assert changes(code, rewrites("h.h"), include_path=".")


@pytest.mark.parametrize(
    "code",
    [
        '// #include "h.h"',
        '//! #include "h.h"',
        '/*\n * #include "h.h"\n */',
        'int x; #include "h.h"',
        '#included "h.h"',
        "#ifdef __has_include\n#endif\n#if defined(__has_include)\n#define __has_include(x) 0\n#endif",
        "// __has_include(x) asks for a file",
    ],
)
def test_the_documentation_in_a_comment_does_not_count(tree: Tree, code: str, caplog: pytest.LogCaptureFixture) -> None:
    tree({"h.h": ""})
    assert not changes(code, rewrites("h.h"), include_path=".")
    assert not caplog.records


def test_headers_are_followed_through_headers_and_cycles(tree: Tree) -> None:
    tree({"a.h": '#include "b.h"', "b.h": '#include "a.h"\n#include "./b.h"\n#include "c.h"', "c.h": ""})
    assert changes('#include "a.h"', rewrites("c.h"))


def test_a_link_to_a_directory_above_ends(tree: Tree) -> None:
    tree({"up": "->.", "h.h": '#include "up/h.h"\n#include "c.h"', "c.h": ""})
    assert changes('#include "up/h.h"', rewrites("c.h"))
