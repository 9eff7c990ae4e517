# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: what is refused, and how it is said."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lockcache.errors import UncacheableError
from lockcache.headers import fingerprint
from tests.unit.headers.trees import Tree


@pytest.mark.parametrize("word", ["__TIME__", "__DATE__", "__TIMESTAMP__"])
def test_the_clock_in_a_header_is_refused(tree: Tree, word: str) -> None:
    tree({"a.h": '#include "b.h"', "b.h": f"const char *when = {word};"})
    with pytest.raises(UncacheableError, match=rf"b\.h has {word}"):
        fingerprint('#include "a.h"')
    with pytest.raises(UncacheableError, match=f"x.cu has {word}"):
        fingerprint(word, name="x.cu")
    with pytest.raises(UncacheableError, match=word):
        fingerprint("", define_macro=("NOW", word))


def test_a_header_that_cannot_be_read_is_named(tree: Tree) -> None:
    # A regular file, by its status, that fails to be read: also for root, whom permissions do not stop.
    tree({"h.h": "->/proc/self/mem"})
    with pytest.raises(OSError, match=r"cannot read a header.*h\.h") as caught:
        fingerprint('#include "h.h"')
    assert str(caught.value.filename).endswith("/h.h")


def test_a_header_that_goes_whenever_it_is_looked_at_is_an_error_that_names_it_and_not_a_hang(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree({"h.h": ""})
    real, opened = os.open, []

    def gone(path: bytes, flags: int, *rest: Any) -> int:
        if os.fsdecode(path).endswith("h.h"):
            opened.append(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", gone)
    with pytest.raises(FileNotFoundError, match=r"h\.h"):
        fingerprint('#include "h.h"')
    assert len(opened) == 3


def test_a_header_that_its_server_replaced_while_it_was_read_is_read_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree({"h.h": "int before;"})
    before = fingerprint('#include "h.h"')
    Path("h.h").write_text("int after;")
    real, stale = os.fstat, [errno.ESTALE, errno.ESTALE]

    def fstat(fd: int) -> os.stat_result:
        if stale and os.readlink(f"/proc/self/fd/{fd}").endswith("/h.h"):
            raise OSError(stale.pop(), "stale file handle")
        return real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fstat)
        after = fingerprint('#include "h.h"')
    assert not stale
    assert before != after == fingerprint('#include "h.h"')


def test_a_disk_that_gives_no_answer_is_an_error_and_no_missing_header(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree({"h.h": ""})
    real = os.stat

    def broken(path: Any, *rest: Any, **options: Any) -> os.stat_result:
        if isinstance(path, bytes) and path.endswith(b"h.h"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(OSError, match="Input/output error"):
        fingerprint('#include "h.h"')


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_header_without_read_permission_is_a_permission_error(tree: Tree) -> None:
    tree({"h.h": ""})
    os.chmod("h.h", 0)
    with pytest.raises(PermissionError, match=r"h\.h"):
        fingerprint('#include "h.h"')


@pytest.mark.parametrize("wrong", [5, b"a", {"a"}, {"a": 1}, ["a", 5], [b"a"], [["a"]], object])
def test_a_path_of_a_wrong_type_is_named(wrong: Any) -> None:
    for argument in ("include_path", "pre_include"):
        with pytest.raises(TypeError, match=rf"{argument}(\[\d\])? must be a str or an os.PathLike"):
            fingerprint("", **{argument: wrong})


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"include_path": ["a", 5]}, r"include_path\[1\] must be .* got int 5"),
        ({"pre_include": "a\0b"}, r"pre_include must not contain NUL, got 'a\\x00b'"),
        ({"include_path": ["a", "\ud800"]}, r"include_path\[1\] must be what a path can be, got '\\ud800'"),
        ({"name": "a\0"}, "name must not contain NUL"),
        ({"define_macro": ["A", ("B", 5)]}, r"define_macro\[1\]\[1\] must be .* got int 5"),
    ],
)
def test_an_item_is_named_by_its_place(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        fingerprint("", **arguments)


def test_other_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="code must be a str, bytes or bytearray, got int"):
        fingerprint(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a str or None, got PosixPath"):
        fingerprint("", name=Path("x"))  # type: ignore[arg-type]
    for macro in (5, [5], ("A", 5), b"A", {"A": "1"}):
        with pytest.raises(TypeError, match=r"define_macro(\[\d\])? must be"):
            fingerprint("", define_macro=macro)  # type: ignore[arg-type]


def test_paths_may_be_given_in_every_accepted_form(tree: Tree, tmp_path: Path) -> None:
    tree({"a/h.h": "", "p.h": ""})
    forms: list[Any] = ["a", Path("a"), ["a"], (Path("a"),), tmp_path / "a"]
    assert len({fingerprint("#include <h.h>", form, "p.h") for form in forms}) == 1
    assert fingerprint("", None, None, define_macro=None) == fingerprint(b"") == fingerprint(bytearray())
