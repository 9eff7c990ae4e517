# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: where names are looked for, and what does not count."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lockcache.headers import fingerprint
from tests.unit.headers.trees import Tree, changes, rewrites


def test_a_shadow_in_a_directory_that_was_missing_counts(tree: Tree, settled: None) -> None:
    tree({"b/x/y/h.h": ""})
    code, path = "#include <x/y/h.h>", ["a", "b"]
    assert not changes(code, Path("a").mkdir, include_path=path)
    assert not changes(code, Path("a/x").mkdir, include_path=path)
    assert changes(code, lambda: tree({"a/x/y/h.h": ""}), include_path=path)


def test_a_missing_header_is_no_error_and_counts_when_it_appears(tree: Tree, settled: None) -> None:
    tree({"x": ""})
    assert changes('#include "sub/h.h"', lambda: tree({"sub/h.h": ""}))
    assert changes('#include "sub/h.h"', lambda: Path("sub/h.h").unlink())


def test_quotes_look_beside_the_including_file_and_angle_brackets_do_not(tree: Tree) -> None:
    tree({"a/n.h": '#include "h.h"', "a/m.h": "#include <h.h>", "a/h.h": ""})
    assert changes('#include "a/n.h"', rewrites("a/h.h"))
    assert not changes('#include "a/m.h"', lambda: Path("a/h.h").write_text("//"))
    assert not changes('#include "a/n.h"', rewrites("a/h.h"), no_source_include=True)


def test_quotes_do_not_look_beside_the_files_above(tree: Tree) -> None:
    tree({"a/n.h": '#include "b/m.h"', "a/b/m.h": '#include "h.h"', "a/h.h": "", "h.h": ""})
    assert not changes('#include "a/n.h"', lambda: (rewrites("a/h.h")(), rewrites("h.h")()))


def test_the_source_lies_where_its_name_says(tree: Tree) -> None:
    tree({"h.h": "", "sub/h.h": ""})
    assert changes('#include "h.h"', rewrites("sub/h.h"), name="sub/x.cu")
    assert not changes('#include "h.h"', rewrites("h.h"), name="sub/x.cu")
    assert not changes('#include "h.h"', lambda: Path("h.h").write_text(""), name="sub/x.cu", no_source_include=True)


def test_pre_includes_come_from_the_working_directory_then_from_include_path(tree: Tree) -> None:
    tree({"a/p.h": "", "sub/p.h": ""})
    arguments: dict[str, Any] = {"pre_include": "p.h", "include_path": "a", "name": "sub/x.cu"}
    assert changes("", rewrites("a/p.h"), **arguments)
    assert not changes("", rewrites("sub/p.h"), **arguments)
    assert changes("", lambda: tree({"p.h": '#include "q.h"'}), no_source_include=True, **arguments)
    assert changes("", lambda: tree({"q.h": ""}), **arguments)


def test_the_order_of_pre_includes_counts(tree: Tree) -> None:
    tree({"p.h": "1", "q.h": "2"})
    assert fingerprint("", (), ["p.h", "q.h"]) != fingerprint("", (), ["q.h", "p.h"])


def test_an_absolute_name_is_that_file(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": ""})
    assert changes(f"#include <{tmp_path}/far/h.h>", rewrites("far/h.h"))
    assert changes("", lambda: Path("far/h.h").unlink(), pre_include=tmp_path / "far" / "h.h")


def test_every_place_counts_for_include_next(tree: Tree) -> None:
    tree({"a/h.h": "#include_next <h.h>", "b/h.h": "", "c/h.h": ""})
    path = ["a", "b", "c"]
    assert changes("#include <h.h>", rewrites("b/h.h"), include_path=path)
    assert changes("#include <h.h>", rewrites("c/h.h"), include_path=path)


def test_a_name_without_a_dot_may_be_a_stdh(tree: Tree) -> None:
    tree({"a/x": "", "b/vector": ""})
    assert changes("#include <vector>", lambda: tree({"a/vector.stdh": ""}), include_path=["a", "b"])
    assert changes("#include <vector>", lambda: tree({"a/vector": ""}), include_path=["a", "b"])


def test_directories_and_devices_are_passed_over(tree: Tree, settled: None) -> None:
    tree({"a/h.h/x": "", "b/h.h": "->/dev/null", "c/h.h": "->nowhere", "d/h.h": "->h.h", "e/h.h": ""})
    os.mkdir("f")
    os.mkfifo("f/h.h")
    path = ["a", "b", "c", "d", "f", "e"]
    assert changes("#include <h.h>", rewrites("e/h.h"), include_path=path)
    assert changes("#include <h.h>", lambda: tree({"c/nowhere": ""}), include_path=path)
    assert changes("#include <h.h>", lambda: (os.unlink("b/h.h"), tree({"b/h.h": ""})), include_path=path)


def test_whether_there_is_a_file_is_all_that_has_include_asks(tree: Tree) -> None:
    tree({"a/x": "", "b/h.h": ""})
    code, path = "#if __has_include(<h.h>)\n#endif", ["a", "b"]
    assert not changes(code, rewrites("b/h.h"), include_path=path)
    assert changes(code, lambda: tree({"a/h.h": ""}), include_path=path)
    assert changes(code, lambda: (os.unlink("a/h.h"), os.unlink("b/h.h")), include_path=path)


def test_a_file_is_read_though_has_include_asked_for_it_before(tree: Tree) -> None:
    tree({"h.h": ""})
    assert changes('#if __has_include("h.h")\n#include "h.h"\n#endif', rewrites("h.h"))


# ---- what does not count ---------------------------------------------------------------------------------------------


def test_the_same_headers_at_another_place_agree(tree: Tree, tmp_path: Path) -> None:
    one = {"n.h": '#include "x/h.h"\n#include <x/h.h>\n#include <none.h>', "x/h.h": "int a;"}
    tree({f"{root}/{name}": content for root in ("one", "further/away") for name, content in one.items()})
    digests = {fingerprint("#include <n.h>", root) for root in ("one", "further/away", tmp_path / "one", "./one/.")}
    assert len(digests) == 1


def test_links_and_times_do_not_count(tree: Tree) -> None:
    tree({"cuda-13/h.h": '#include "i.h"', "cuda-13/i.h": "", "cuda": "->cuda-13", "other/h.h": "->../cuda-13/h.h"})
    tree({"other/i.h": ""})
    expected = fingerprint("#include <h.h>", "cuda-13")
    assert fingerprint("#include <h.h>", "cuda") == expected
    assert fingerprint("#include <h.h>", "other") == expected
    os.utime("cuda-13/h.h", (1, 1))
    assert fingerprint("#include <h.h>", "cuda-13") == expected


def test_two_names_of_one_file_are_told_from_two_copies(tree: Tree) -> None:
    """``#pragma once`` knows a file by its inode: a link is included once, a copy twice."""
    tree({"one/h.h": "#pragma once", "one/i.h": "->h.h", "two/h.h": "#pragma once", "two/i.h": "#pragma once"})
    code = "#include <h.h>\n#include <i.h>"
    assert fingerprint(code, "one") != fingerprint(code, "two")
