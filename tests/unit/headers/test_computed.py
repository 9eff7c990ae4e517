# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: names that macros make, ``#include MACRO``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.errors import UncacheableError
from lockcache.headers import computed, fingerprint
from tests.unit.headers.trees import Tree, changes, rewrites


@pytest.mark.parametrize(
    "code",
    [
        "#include HEADER",
        "#define H(x) <x.h>\n#include H(deep)",
        "#if __has_include(HEADER)\n#endif",
        "#define HAS(x) __has_include(x)",
        "#define HAS __has_include\n#if HAS(<h.h>)\n#endif",
        "#define P(a, b) a##b\n#if P(__has_, include)(<h.h>)\n#endif",
    ],
)
def test_a_computed_name_may_be_any_file(tree: Tree, code: str, caplog: pytest.LogCaptureFixture) -> None:
    tree({"a/deep/er/h.h": "", "beside/h.h": ""})
    assert changes(code, rewrites("a/deep/er/h.h"), include_path="a")
    assert changes(code, rewrites("beside/h.h"), include_path="a")
    assert changes(code, lambda: tree({"a/deep/new": ""}), include_path="a")
    assert changes(code, lambda: os.unlink("a/deep/new"), include_path="a")
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert "every file below" in said[0].getMessage()


def test_what_computed_headers_include_is_followed(tree: Tree) -> None:
    tree({"a/one.h": '#include "../far/two.h"', "far/two.h": ""})
    assert changes("#include M", rewrites("far/two.h"), include_path="a", no_source_include=True)


def test_a_macro_that_leads_out_of_the_directories_is_followed(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": "", "a/x.h": f'#define M "{tmp_path}/far/h.h"', "sub/c.h": "#include M"})
    code = '#include <x.h>\n#include "c.h"'
    assert changes(code, rewrites("far/h.h"), include_path="a", name="sub/x.cu")


def test_a_macro_on_the_command_line_counts(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": "", "sub/x": ""})
    for macro in (f'M="{tmp_path}/far/h.h"', [("M", '"../far/h.h"')], ("M", '"../far/h.h"')):
        Path("far/h.h").write_text("")
        assert changes("#include M", rewrites("far/h.h"), define_macro=macro, name="sub/x.cu")
    asks = {"define_macro": [("YES", '__has_include("new.h")')]}
    assert changes("", lambda: tree({"new.h": ""}), **asks)


@pytest.mark.parametrize("macro", ["#define UP ..", "#define ROOT /usr", "#define H(x) </x>", "#define H /*\n*/ /usr"])
def test_a_name_that_may_be_composed_to_one_anywhere_is_refused(tree: Tree, macro: str) -> None:
    tree({"h.h": f"{macro}\n"})
    assert fingerprint('#include "h.h"')
    with pytest.raises(UncacheableError, match=r"includes a computed name.*h\.h.*outside"):
        fingerprint('#include "h.h"\n#include M')


def test_too_many_files_for_a_computed_name_are_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree({f"{i}.h": "" for i in range(5)})
    monkeypatch.setattr(computed, "_TREE_FILES_LIMIT", 5)
    assert fingerprint("#include M")
    tree({"6.h": ""})
    with pytest.raises(UncacheableError, match=r"#include M.*more than 5.*Name the header literally"):
        fingerprint("#include M")
    assert fingerprint("#include M", no_source_include=True)


def test_entries_of_a_cache_below_the_working_directory_do_not_count(tree: Tree) -> None:
    FileStreamProgramCache("kernels").close()

    def store() -> None:
        with FileStreamProgramCache("kernels") as cache:
            cache["key"] = b"code"

    assert not changes("#include M", store)
    assert changes("#include M", lambda: tree({"kernels/h.h": ""}))
    assert changes("#include M", lambda: tree({"other/entries/h.h": "", "other/lockcache/state": ""}))


def test_a_loop_of_links_ends_for_a_computed_name(tree: Tree) -> None:
    tree({"a/up": "->..", "a/h.h": ""})
    assert changes("#include M", rewrites("a/h.h"))


@pytest.mark.parametrize("make", [lambda: None, lambda: os.mkfifo("new"), lambda: Path("new").write_text("")])
def test_a_directory_that_is_not_there_yet_counts(tree: Tree, settled: None, make: Callable[[], object]) -> None:
    tree({"a/h.h": ""})
    make()

    def become_one() -> None:
        Path("new").unlink(missing_ok=True)
        tree({"new/h.h": ""})

    assert changes("#include M", become_one, include_path="a", name="new/x.cu")


def test_a_pipe_that_becomes_a_directory_counts(tree: Tree, settled: None) -> None:
    tree({"a/h.h": ""})
    os.mkfifo("a/pipe")
    assert changes("#include M", lambda: (os.unlink("a/pipe"), tree({"a/pipe/h.h": ""})), include_path="a")
