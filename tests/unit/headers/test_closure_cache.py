# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers: what is remembered, and when it counts no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.headers import closure_cache, files, fingerprint, source
from tests.unit.headers.trees import Tree, changes


class Calls:
    """Counts what reaches the file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = dict.fromkeys(("stat", "open", "access", "listdir"), 0)
        for name in self.count:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count[name] += 1
            return real(*arguments, **named)

        return call

    def of(self, work: Callable[[], object]) -> dict[str, int]:
        for name in self.count:
            self.count[name] = 0
        work()
        return dict(self.count)


def wide(tree: Tree, count: int) -> str:
    """A source of ``count`` headers, each in the last of four directories."""
    tree({f"d/x/{i}.h": f"int a{i};\n#include <x/{i + 1}.h>" for i in range(count)})
    for name in "abc":
        os.mkdir(name)
    return "#include <x/0.h>"


def test_a_warm_call_opens_nothing_and_looks_at_each_file_once(
    tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, path = wide(tree, 300), ["a", "b", "c", "d"]
    fingerprint(code, path)
    calls = Calls(monkeypatch).of(lambda: fingerprint(code, path))
    # 300 files and 5 directories; a/x, b/x and c/x stand for 900 misses, d/x/300.h is one of its own.
    assert calls == {"stat": 305, "open": 0, "access": 4, "listdir": 0}


def test_a_second_source_with_the_same_headers_reads_none_of_them(
    tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, path = wide(tree, 20), ["d"]
    fingerprint(code, path)
    read = Calls(monkeypatch)
    assert read.of(lambda: fingerprint(code + "\nint other;", path))["open"] == 0
    scans: list[bytes] = []
    monkeypatch.setattr(files, "scan", lambda data: scans.append(data) or source.scan(data))
    fingerprint(code + '\n#include "none.h"', path)
    assert not scans


def test_a_young_file_is_read_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree({"h.h": ""})
    fingerprint('#include "h.h"')
    assert Calls(monkeypatch).of(lambda: fingerprint('#include "h.h"'))["open"] == 1


def test_a_change_that_leaves_size_and_mtime_alone_is_seen(tree: Tree, settled: None) -> None:
    tree({"h.h": "one"})
    os.utime("h.h", ns=(10**18, 10**18))

    def change() -> None:
        Path("h.h").write_text("two")
        os.utime("h.h", ns=(10**18, 10**18))

    assert changes('#include "h.h"', change)


def test_a_link_turned_to_another_directory_is_seen(tree: Tree, settled: None) -> None:
    """Also where the file itself is the same inode: what lies next to it is not."""
    tree({"one/h.h": '#include "i.h"', "one/i.h": "1", "two/i.h": "2", "cuda": "->one"})
    os.link("one/h.h", "two/h.h")

    def turn() -> None:
        os.unlink("cuda")
        os.symlink("two", "cuda")

    assert changes("#include <h.h>", turn, include_path="cuda")


def test_the_working_directory_counts_for_what_is_remembered(tree: Tree, settled: None, tmp_path: Path) -> None:
    tree({"one/h.h": "1", "two/h.h": "2"})
    os.chdir("one")
    before = fingerprint('#include "h.h"')
    os.chdir(tmp_path / "two")
    assert fingerprint('#include "h.h"') != before


def test_a_removed_working_directory_is_no_error(tree: Tree, tmp_path: Path) -> None:
    tree({"gone/x": "", "a/h.h": ""})
    os.chdir("gone")
    os.unlink("x")
    os.rmdir(tmp_path / "gone")
    code, path = '#include "h.h"', tmp_path / "a"
    assert changes(code, lambda: (tmp_path / "a/h.h").write_text("// another one"), include_path=path)


@pytest.mark.parametrize(
    "mtime_seconds, ctime_seconds, expected",
    [
        (98, 98, True),
        (200, 98, True),  # out of an archive that has the future in it
        (0, 99, False),
        (0, 101, False),  # a server's clock, ahead of this one
        (99, 0, False),  # a file system without ctime
    ],
)
def test_a_file_is_settled_two_seconds_after_its_last_change(
    mtime_seconds: int, ctime_seconds: int, expected: bool
) -> None:
    found = (1, 1, 1, mtime_seconds * 10**9, ctime_seconds * 10**9)
    assert files._is_settled(found, 1005 * 10**8) is expected


def test_what_is_remembered_is_bounded(tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closure_cache, "_FACTS_LIMIT", 50)
    monkeypatch.setattr(files, "_CONTENTS_LIMIT", 10)
    tree({f"{i}.h": "" for i in range(100)})
    for i in range(100):
        fingerprint(f'#include "{i}.h"')
        assert closure_cache._closures._facts <= 50
        assert len(files._contents._known) <= 10
    held = sum(closure.facts.weight for closure in closure_cache._closures._known.values())
    assert closure_cache._closures._facts == held > 0


def test_a_fork_while_a_thread_holds_the_lock_leaves_the_child_a_free_one(tree: Tree, settled: None) -> None:
    code = wide(tree, 5)
    expected = fingerprint(code, ["d"])
    with closure_cache._closures._lock, files._contents._lock:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if fingerprint(code, ["d"]) == expected and fingerprint("", ["d"]) else 1
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_header_deleted_while_it_is_looked_for_is_looked_for_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree({"a/h.h": "", "b/h.h": ""})
    load = files.load

    def delete_first(path: bytes) -> Any:
        if os.path.exists("a/h.h"):
            os.unlink("a/h.h")
        return load(path)

    monkeypatch.setattr(files, "load", delete_first)
    assert fingerprint("#include <h.h>", ["a", "b"]) == fingerprint("#include <h.h>", ["a", "b"])
