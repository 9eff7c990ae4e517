# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: texts that are made to be hard to read, and files that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.errors import UncacheableError
from lockcache.headers import files, fingerprint
from lockcache.headers.source import scan
from tests.limits import peak_bytes, within
from tests.unit.headers.trees import Tree

# Each is repeated until the text has 128 KiB, of which the scan that there was read the worst for an hour.
REPEATED = [
    "#define A / /*\n",
    "#define A / /*\n#",
    "#/*a",
    "# /* # /*x*/",
    "#/**/",
    "#/*\n*/define A /*\n",
    "*/#include<",
    '*/#include"',
    "#define a",
    "#define a(",
    "#define A /* ",
    '*/#define A "/',
    "#define <",
    "#include X ",
    "__has_include ",
    "defined __has_include ",
    "__has_include/*",
    "__has_include(<",
    "//__has_include",
    '"/',
    "/*",
    "*/",
    " ",
    "?\\?/\n",
    "x##",
]


@pytest.mark.slow
def test_any_text_is_scanned_in_linear_time() -> None:
    script = "import sys; from lockcache.headers.source import scan; size = 1 << 17\n"
    script += "for text in map(str.encode, sys.argv[1:]): scan(text * (size // len(text))); "
    script += "scan(text * (size // len(text)) + b'*/ x')"
    within(40, script, *REPEATED)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("# /* /* */ /**/ include /* */ <x.h>", b"x.h"),
        ("# /* # */ /* */ include <x.h>", b"x.h"),
        ("#/*/ #include <y.h> */ include <x.h>", b"x.h"),
        ('__has_include /* ( */ ( /* */ "x.h" )', b"x.h"),
    ],
)
def test_a_directive_is_found_behind_whatever_comments(text: str, expected: bytes) -> None:
    assert expected in {operand.name for operand in scan(text.encode()).operands}


@pytest.mark.parametrize("text", ["# /* include <x.h>", "# /* */ /* include <x.h>", "#/*/ include <x.h>"])
def test_a_comment_that_nobody_closes_hides_what_is_behind_it(text: str) -> None:
    assert scan(text.encode()) == scan(b"")


@pytest.mark.parametrize("name", ["x" * 5000, "x\0y"])
def test_a_name_that_no_file_has_may_be_any_name(name: str) -> None:
    assert scan(f"#include <{name}>".encode()).computed


def test_a_computed_name_is_found_however_far_to_the_right_it_stands() -> None:
    assert scan(b" " * 1000 + b"#include NAME").computed
    assert scan(b" " * 1000 + b"__has_include(NAME)").computed_probe


def test_a_question_in_a_long_line_counts_unless_it_is_in_a_comment() -> None:
    assert not scan(b"// " + b"x" * 3000 + b" __has_include(").computed_probe
    assert scan(b"x" * 5000 + b"// __has_include(").computed_probe
    assert not scan(b"#ifdef " + b" " * 50 + b"__has_include").computed_probe


@pytest.mark.parametrize(
    "text",
    [
        b'#define A "../x.h"',
        b'#define A 1 /* and\n on */ "../x.h"',
        b'#define A 1 /* and\n on */ /* and on\n*/ "../x.h"',
        b'#define A 1 /* "../x.h"\n*/',
        b'#define A 1 /*\n#define B 2 /*\n*/ "../x.h"',
    ],
)
def test_a_string_that_leads_out_is_found_however_far_its_macro_goes_on(text: bytes) -> None:
    assert [operand.name for operand in scan(text).outward] == [b"../x.h"]


@pytest.mark.parametrize(
    "text",
    [
        b"#define A /*\n*/ /etc/x",
        b"#define A /*/\n*/ /etc/x",
        b"#define A 1 /*\n#define B /*\n*/ /etc/x",
        b"#define A <../x",
        b"#define A < /*\n*/ /etc/x",
        b"#define A /*\n*/ /*\n*/ ..",
        b"#define A " + b"x " * 300 + b"*/#define B ../x",
    ],
)
def test_pieces_of_a_name_that_leads_out_are_found_however_far_their_macro_goes_on(text: bytes) -> None:
    assert scan(text).outward_pieces


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_header_that_no_memory_takes_is_refused_by_its_size(tree: Tree) -> None:
    tree({"h.h": "", "i.h": ""})
    os.truncate("h.h", 8 << 30)
    before = peak_bytes()
    with pytest.raises(UncacheableError, match=r"h\.h has 8589934592 bytes, and a header of more than 67108864 is not"):
        fingerprint('#include "h.h"')
    assert peak_bytes() - before < 16 << 20


def test_a_header_that_grows_beyond_what_is_read_is_refused_too(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree({"h.h": "x" * 200_000})
    monkeypatch.setattr(files, "_LARGEST_BYTES", 150_000)
    grown = os.stat("h.h")
    with open("h.h", "rb") as file, pytest.raises(UncacheableError, match="150000"):
        files._read(file.fileno(), os.stat_result([*grown[:6], 10, *grown[7:]]), b"h.h")


@pytest.mark.parametrize("path", ["/proc/version", "/proc/kmsg", "/sys/kernel/notes"])
def test_what_the_kernel_makes_up_is_not_read(tree: Tree, path: str) -> None:
    if not Path(path).is_file():
        pytest.skip(f"no {path} here")
    tree({"h.h": f"->{path}"})
    with pytest.raises(OSError, match=r"cannot read a header.*(the kernel makes it up|Permission|permitted).*h\.h"):
        fingerprint('#include "h.h"')
