# SPDX-License-Identifier: Apache-2.0
"""Closures saved for other processes: what a new process takes, and what it reads again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.headers import Evidence, closure_cache, files_seen, saved
from lockcache.headers.closure import Closure
from tests.unit.headers.trees import Store, Tree, examine_anew, forget

CODE = "#include <x/0.h>"
PATH = ["a", "b"]


@pytest.fixture
def store(tree: Tree, settled: None) -> Store:
    """Holds what one process saved of twenty headers."""
    tree({f"b/x/{i}.h": f"int a{i};\n#include <x/{i + 1}.h>" for i in range(20)} | {"a/other.h": ""})
    store = Store()
    examine_anew(CODE, store, include_path=PATH)
    assert len(store) == 1
    return store


def opened(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Closure]) -> tuple[int, Closure]:
    real, count = os.open, 0

    def counted(*arguments: Any, **named: Any) -> int:
        nonlocal count
        count += 1
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", counted)
        closure = work()
    return count, closure


def reads_nothing(monkeypatch: pytest.MonkeyPatch, store: Store) -> bool:
    count, found = opened(monkeypatch, lambda: examine_anew(CODE, store, include_path=PATH))
    assert found[:2] == examine_anew(CODE, include_path=PATH)[:2]
    return count == 0


def test_a_new_process_reads_no_header(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads_nothing(monkeypatch, store)
    assert store.found == 1


def test_what_was_taken_is_remembered_like_what_was_read(store: Store) -> None:
    taken, read = examine_anew(CODE, store, include_path=PATH), examine_anew(CODE, include_path=PATH)
    assert files_seen.hold(taken.facts)
    assert [sorted(facts, key=repr) for facts in taken.facts] == [sorted(facts, key=repr) for facts in read.facts]
    assert taken._replace(facts=read.facts) == read


def test_a_young_header_is_saved_by_nobody(tree: Tree) -> None:
    tree({"b/x/0.h": ""})
    store = Store()
    examine_anew(CODE, store, include_path=PATH)
    assert not store


def shadow() -> None:
    Path("a/x").mkdir()
    Path("a/x/7.h").write_text("int shadows;")


def keep_size_and_mtime() -> None:
    before = os.stat("b/x/7.h")
    Path("b/x/7.h").write_text(Path("b/x/7.h").read_text().replace("a7", "b7"))
    os.utime("b/x/7.h", ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_directory() -> None:
    os.rename("b", "c")
    Path("b/x").mkdir(parents=True)
    for path in Path("c/x").iterdir():
        os.link(path, f"b/x/{path.name}")


@pytest.mark.parametrize(
    "change",
    [
        shadow,
        keep_size_and_mtime,
        replace_directory,
        lambda: os.unlink("b/x/7.h"),
        lambda: Path("b/x/20.h").write_text(""),
        lambda: os.rename("a", "gone"),
    ],
    ids=["shadowed", "size and mtime kept", "another directory", "removed", "added", "first directory gone"],
)
def test_a_change_is_seen_by_a_new_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]
) -> None:
    change()
    assert not reads_nothing(monkeypatch, store)


def with_times(closure: Closure, ctime_ns: int) -> Closure:
    changed = tuple((path, (*found[:4], ctime_ns)) for path, found in closure.facts.files)
    return closure._replace(facts=closure.facts._replace(files=changed))


@pytest.mark.parametrize("ctime_ns, is_saved", [(10**18, False), (10**18 + 4_000_000, True)])
def test_a_ctime_in_whole_seconds_is_no_proof(store: Store, ctime_ns: int, is_saved: bool) -> None:
    # No ctime can be set: squashfs, on which two images agree in it, takes a mount.
    closure, request = examine_anew(CODE, include_path=PATH), next(iter(closure_cache._closures._known))
    empty = Store()
    saved.save(request, with_times(closure, ctime_ns), empty)
    assert bool(empty) == is_saved


def test_devices_may_have_other_numbers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def renumbered(*arguments: Any, **named: Any) -> os.stat_result:
        found = real(*arguments, **named)
        fields, named_too = found.__reduce__()[1]
        return os.stat_result((*fields[:2], found.st_dev + 1000, *fields[3:]), named_too)

    monkeypatch.setattr(os, "stat", renumbered)
    assert reads_nothing(monkeypatch, store)


def rewritten(store: Store, rewrite: Callable[[list[Any]], object]) -> None:
    [(name, content)] = store.items()
    text = json.loads(zlib.decompress(content))
    rewrite(text)
    store[name] = zlib.compress(json.dumps(text).encode())


def test_two_devices_stay_two(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(text: list[Any]) -> None:
        text[5][0][1] = 1  # the first file lay on another device than the rest

    rewritten(store, split)
    assert not reads_nothing(monkeypatch, store)


def test_a_header_that_this_user_may_not_read_is_not_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in for another user: nothing is unreadable for root.
    os.chmod("b/x/7.h", 0o600)
    examine_anew(CODE, store, include_path=PATH)
    assert reads_nothing(monkeypatch, store)
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, *how, **named: path != b"%b/b/x/7.h" % os.getcwdb() and real(path, *how)
    )
    assert not reads_nothing(monkeypatch, store)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no JSON"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"{}"),
        zlib.compress(b"null"),
        zlib.compress(b"[1,2,3,4,5,6,7,8,9,10]"),
        zlib.compress(b'["00","00",0,false,[],[["x"]],[],[],[],[]]'),
        zlib.compress(b'["00","00",0,false,[],[],[["x",[0]]],[],[],[]]'),
        zlib.compress(b'["zz","00",0,false,[],[],[],[],[],[]]'),
        zlib.compress(b'["00","00","x",false,[],[],[],[],[],[]]'),
        zlib.compress(b'["00","00",0,false,[],[],[],["\\u0000"],[],[]]'),
        zlib.compress(b'["00","00",0,false,[],[["\\ud800",0,1,2,3,4]],[],[],[],[]]'),
        zlib.compress(bytes(saved._LARGEST_BYTES + 1)),
    ],
)
def test_what_no_process_saved_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    [name] = store
    store[name] = content
    assert not reads_nothing(monkeypatch, store)
    store[name] = content
    forget()
    assert saved.load(next(iter(_requests())), store) is None


def _requests() -> list[Any]:
    examine_anew(CODE, include_path=PATH)
    return list(closure_cache._closures._known)


def test_each_bit_of_what_is_saved_may_be_another(store: Store) -> None:
    [request], [name] = _requests(), store
    content = store[name]
    for position in range(len(content)):
        store[name] = content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]
        found = saved.load(request, store)  # zlib has a checksum; the store has a better one
        assert found is None or found.digest == examine_anew(CODE, include_path=PATH).digest


def test_what_stat_may_not_tell_is_saved_by_nobody_and_taken_by_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "major", lambda device: 0)
    assert reads_nothing(monkeypatch, store)
    store.kind = Evidence.CONTENT
    assert not reads_nothing(monkeypatch, store)
    store.clear()
    examine_anew(CODE, store, include_path=PATH)
    assert not store


def test_where_stat_tells_only_after_an_open_each_header_is_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in for NFS, whose client answers a stat from memory and asks its server at an open.
    before = {path: os.stat(path) for path in Path("b/x").iterdir()}
    keep_size_and_mtime()
    real = os.stat
    monkeypatch.setattr(os, "major", lambda device: 0)

    def remembered(path: Any, *more: Any, **named: Any) -> os.stat_result:
        return before.get(Path(os.path.relpath(os.fsdecode(path))) if isinstance(path, bytes) else path) or real(
            path, *more, **named
        )

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", remembered)
        [request] = closure_cache._closures._known
        assert saved.load(request, store) is not None
        store.kind = Evidence.OPEN
        assert saved.load(request, store) is None


def test_a_locale_changes_no_path(store: Store, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ["\u00e9", "b"]
    examine_anew(CODE, store, include_path=path)
    [request] = closure_cache._closures._known
    assert saved.load(request, store) is not None
    tree({"\u00e9/x/0.h": "int shadows;"})
    monkeypatch.setattr(os, "fsencode", lambda text: text if isinstance(text, bytes) else text.encode("latin-1"))
    assert saved.load(request, store) is None


@pytest.mark.parametrize(
    "code, is_found",
    [
        ("#include <x/0.h>", True),
        ("#include <x/0.h>\n#define ASKS __has_include(<x/1.h>)", True),
        ('#include "x/0.h"', False),
        ("#include <x/0.h>\n#define NAME <x/1.h>\n#include NAME", False),
        ("#include <x/probe.h>", False),  # which asks next to each file
    ],
)
def test_from_another_working_directory_it_is_found_unless_that_is_searched(
    store: Store, tree: Tree, monkeypatch: pytest.MonkeyPatch, code: str, is_found: bool
) -> None:
    tree({"b/x/probe.h": "#define NAME <x/1.h>\n#if __has_include(NAME)\n#endif", "elsewhere/x/0.h": "int nearer;"})
    include = [os.path.abspath(path) for path in PATH]
    for name in ("one", "default_program"):
        examine_anew(code, store, include_path=include, name=name)
    os.chdir("elsewhere")
    count, found = opened(monkeypatch, lambda: examine_anew(code, store, include_path=include, name="other"))
    assert found[:2] == examine_anew(code, include_path=include)[:2]
    assert (count == 0) == is_found
