# SPDX-License-Identifier: Apache-2.0
"""The part that adapters share, with a stand-in for what a framework calls; the frameworks have tests/frameworks."""

from __future__ import annotations

import contextlib
import functools
import grp
import importlib
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, Turn
from lockcache.filestream.entry import EntryReader
from lockcache.filestream.inspect import read_misses
from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    framework_doors,
    install,
    installed,
    installing,
    looking_for_doors,
    never_raising,
    open_shared,
)
from tests.waiting import telling_of_waits

HANG_SECONDS = 60


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(never_raising, "_warned", set())
    monkeypatch.setattr(framework_doors, "_reported", set())
    monkeypatch.setattr(installing, "_installed", {})


def leases(shared: Shared) -> list[str]:
    folder = Path(shared.cache.path) / "lockcache" / "leases"
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_lookup_outside_of_a_compilation_takes_no_turn(shared: Shared) -> None:
    assert shared.look_up("k") is None
    assert leases(shared) == []
    shared.store("k", b"code", arch="sm_90")
    assert shared.look_up("k") == shared.look("k") == b"code"
    entry = shared.cache.get_entry("some/1.2/k")
    assert (entry.metadata["kind"], entry.metadata["arch"]) == ("some", "sm_90")


def test_a_lookup_in_a_compilation_has_the_turn_until_the_store(shared: Shared) -> None:
    def compile_() -> None:
        assert shared.look_up("k", "a kernel") is None
        assert len(leases(shared)) == 1
        assert shared.look_up("k") is None, "a framework may look twice"
        shared.store("k", b"code")
        assert leases(shared) == []

    shared.compiling(compile_)()
    assert shared.cache.stats().misses == 1
    assert shared.look("k") == b"code"
    assert not shared.has_failed


def test_a_miss_looks_into_the_directory_once_before_it_has_the_turn(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    load = EntryReader.load

    def look(reader: EntryReader, name: str) -> tuple[bytes, bytes] | None:
        looks.append(name)
        return load(reader, name)

    def compile_() -> None:
        assert shared.look_up("k") is None

    monkeypatch.setattr(shared.cache, "_here", functools.partial(look, shared.cache._reader))
    monkeypatch.setattr(shared.cache._parts.once, "load", functools.partial(look, shared.cache._reader))
    shared.compiling(compile_)()
    assert len(looks) == 1
    assert shared.cache.stats().misses == 1


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_what_a_compilation_leaves_open_is_given_up(shared: Shared, error: type[Exception] | None) -> None:
    began, found = threading.Event(), []

    def compile_(inner: bool) -> None:
        assert shared.look_up("inner" if inner else "k") is None
        if not inner:
            with pytest.raises(error) if error else contextlib.nullcontext():
                shared.compiling(compile_)(True)
            assert len(leases(shared)) == 1, "the inner one alone was given up"
            began.set()
        if error:
            raise error

    def want() -> None:
        assert began.wait(HANG_SECONDS)
        shared.compiling(lambda: found.append(shared.look_up("k")))()

    waiter = threading.Thread(target=want)
    waiter.start()
    if error:
        with pytest.raises(error):
            shared.compiling(compile_)(False)
    else:
        shared.compiling(compile_)(False)
    waiter.join(HANG_SECONDS)
    assert found == [None]
    # Where somebody waited for one that failed, its file stays for a while, and says so.
    assert len(leases(shared)) <= bool(error)


def test_where_a_framework_stores_all_it_looks_up_those_who_wait_for_what_it_did_not_store_compile_at_once(
    shared: Shared,
) -> None:
    """One after the other they would wait for the next, which cannot store it either."""
    waiting, meeting, found = threading.Semaphore(0), threading.Barrier(2, timeout=HANG_SECONDS), []

    def want() -> None:
        found.append(shared.look_up("k"))
        meeting.wait()

    def leave_open() -> None:
        assert shared.look_up("k") is None
        for waiter in waiters:
            waiter.start()
        for _ in waiters:
            assert waiting.acquire(timeout=HANG_SECONDS)

    waiters = [threading.Thread(target=shared.compiling(want, stores_all=True)) for _ in range(2)]
    with telling_of_waits(waiting.release):
        shared.compiling(leave_open, stores_all=True)()
        for waiter in waiters:
            waiter.join(HANG_SECONDS)
    assert found == [None, None]
    assert not meeting.broken


def test_an_error_of_the_cache_is_one_warning_and_no_exception(
    shared: Shared, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    caplog.set_level(logging.WARNING, "lockcache")
    for name in ("begin", "get", "put_entry"):
        monkeypatch.setattr(shared.cache, name, broken)
    assert shared.compiling(lambda: shared.look_up("k"))() is None
    assert (shared.look_up("k"), shared.look("k")) == (None, None)
    shared.store("k", b"code")
    assert shared.has_failed
    [record] = caplog.records
    assert record.getMessage() == "some goes on with its own cache: OSError: [Errno 5] Input/output error"


def test_an_adapter_is_installed_once_and_one_that_cannot_be_is_a_warning(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> Shared:
        raise UnsupportedError("its doors have changed")

    assert not install("other", refuse)
    assert not install("other", refuse)
    assert [record.getMessage() for record in caplog.records] == [
        "other goes on with its own cache: UnsupportedError: its doors have changed"
    ]
    assert install("some", lambda: shared)
    assert install("some", refuse), "it is installed"
    assert (installed("some"), installed("other")) == (shared, None)


def test_an_adapter_whose_framework_is_imported_on_the_way_is_installed_once(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that installs the adapter itself does so under ``lockcache run``."""
    done = []

    def action() -> Shared:
        for _ in range(2):
            assert not install("some", action)
        other = threading.Thread(target=install, args=("some", action))  # which imports the framework for this one
        other.start()
        other.join(HANG_SECONDS)
        done.append(1)
        return shared

    assert install("some", action)
    assert install("some", action)
    assert (done, caplog.messages) == ([1], [])

    def fails() -> Shared:
        assert not install("other", fails)
        raise UnsupportedError("its doors have changed")

    assert not install("other", fails)
    assert caplog.messages == ["other goes on with its own cache: UnsupportedError: its doors have changed"]
    assert install("other", lambda: shared), "what is refused once may be tried again"


def test_where_lockcache_is_off_nothing_is_installed(
    shared: Shared, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    assert not install("some", lambda: shared)
    assert (installed("some"), caplog.messages) == (None, [])
    monkeypatch.setenv("LOCKCACHE_DISABLE", "please")
    assert not install("some", lambda: shared)
    assert ["LOCKCACHE_DISABLE: 'please' is not" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("version", ["0.4.37", "0.4", "0", "0.4rc1+cuda13"])
def test_an_older_framework_that_has_all_doors_is_adapted_and_one_line_says_that_it_is_older(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    for newer in ("0.4.38", "0.5.0rc1", "0.12.1", "1", "1.0+cu13", "a version of one's own"):
        with looking_for_doors("jax", newer, (0, 4, 38)):
            pass
    assert caplog.messages == []
    for _ in range(2):
        with looking_for_doors("jax", version, (0, 4, 38)):
            pass
    older = "is used with lockcache, but is older than 0.4.38, the oldest version that was tried"
    assert caplog.messages == [f"jax {version} {older}"]


@pytest.mark.parametrize(
    "look, named",
    [
        (lambda: importlib.import_module("json.no_such_part"), "No module named 'json.no_such_part'"),
        (lambda: json._no_such_door, "module 'json' has no attribute '_no_such_door'"),
        (lambda: json.JSONEncoder._compile, "type object 'JSONEncoder' has no attribute '_compile'"),
    ],
)
@pytest.mark.parametrize("version", ["9.0", "1.0"])
def test_a_door_that_is_missing_is_named_in_the_refusal_whatever_the_version(
    version: str, look: Callable[[], object], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    def action() -> Shared:
        with looking_for_doors("json", version, (2, 6)):
            look()
        raise AssertionError("the door is missing")

    assert not install("some", action)
    older = " (older than 2.6, the oldest version that was tried)" if version == "1.0" else ""
    assert caplog.messages == [f"some goes on with its own cache: UnsupportedError: json {version}: {named}{older}"]


def test_values_that_run_code_are_not_loaded_from_a_group_unless_they_are_signed(
    cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_GROUP", grp.getgrgid(os.getgid()).gr_name)
    with pytest.raises(UnsupportedError, match="shared with a group"):
        open_shared("some", "1", cache_path, None, runs_code=True)
    open_shared("some", "1", cache_path, None)
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text("5a" * 32)
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(keys))
    open_shared("some", "1", cache_path, None, runs_code=True)
    assert not FileStreamProgramCache(tmp_path / "own", group=False).is_forgeable


FILES = {"kernel.so": b"code", "kernel.json": b"{}"}


def test_the_turn_for_files_ends_with_the_store_or_when_nobody_has_it(shared: Shared) -> None:
    turn = shared.begin_files("k", "a kernel")
    assert isinstance(turn, Turn)
    assert len(leases(shared)) == 1
    assert shared.begin_files("k") is None, "this thread has it, and would wait for itself"
    del turn
    assert leases(shared) == []
    turn = shared.begin_files("k")
    shared.store_files("k", FILES, turn, arch="sm_90")
    assert leases(shared) == []
    assert shared.begin_files("k") == shared.look_at_files("k") == FILES
    entry = shared.cache.get_entry("some/1.2/k")
    assert (entry.metadata["kind"], entry.metadata["arch"]) == ("some", "sm_90")
    assert entry.metadata["compile_cost_ns"] > 0
    path = shared.view("k")
    assert path.names == tuple(FILES)
    assert Path(path, "kernel.so").read_bytes() == b"code"


def test_files_that_lost_their_names_in_a_copy_are_made_again_in_one_turn(shared: Shared) -> None:
    shared.store_files("k", FILES, None)
    [path] = [
        os.path.join(at, name) for at, _, names in os.walk(shared.cache.path) for name in names if len(name) == 62
    ]
    os.removexattr(path, "user.lockcache")
    turn = shared.begin_files("k", "a kernel")
    assert isinstance(turn, Turn)
    assert shared.begin_files("k") is None, "this thread has it, and would wait for itself"
    shared.store_files("k", FILES, turn)
    assert shared.begin_files("k") == shared.look_at_files("k") == FILES


def test_files_that_cannot_be_stored_are_one_warning(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    shared.store_files("k", {"a/b": b""}, None)
    shared.store_files("k", {}, shared.begin_files("k"))
    assert shared.has_failed
    assert leases(shared) == []
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1


class Asked:
    """What says the parts of keys, and how often it was asked."""

    def __init__(self, **parts: object) -> None:
        self.parts, self.times = parts, 0

    def __call__(self) -> dict[str, object]:
        self.times += 1
        return self.parts


def parts_of_last_miss(shared: Shared) -> dict[str, str]:
    shared.cache.close()
    [miss, *_] = read_misses(shared.cache._directory.layout)
    return {part.name: part.value for part in miss.parts}


STATED = {"framework": "some", "version of some": "1.2", "rest of the key": ""}


def test_what_a_key_is_made_of_is_asked_once_at_a_miss_and_never_at_a_hit(shared: Shared) -> None:
    asked = Asked(code="x", arch="sm_90")
    compiling = shared.compiling(lambda: shared.look_up("k", "a kernel", asked) or shared.store("k", b"code"))
    compiling()
    assert asked.times == 1
    assert parts_of_last_miss(shared) == {**STATED, "code": "x", "arch": "sm_90"}
    assert compiling() == b"code"
    turn = shared.begin_files("files", "a module", asked)
    shared.store_files("files", FILES, turn)
    assert shared.begin_files("files", "a module", asked) == FILES
    assert shared.look("files") is not None
    assert shared.look("k", "a kernel", asked) == b"code"
    assert asked.times == 2


def test_parts_are_known_of_what_is_stored_without_a_turn_or_replaces_files_or_is_compiled_again(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.look("looked at", "a kernel", Asked(code="looked at"))
    shared.store("looked at", b"code")
    assert parts_of_last_miss(shared) == {**STATED, "code": "looked at"}
    shared.state("stated", "a kernel", Asked(code="stated"))
    shared.store("stated", b"code")
    assert parts_of_last_miss(shared) == {**STATED, "code": "stated"}
    shared.store("files", b"without the names of files")
    shared.store_files("files", FILES, shared.begin_files("files", "a module", Asked(code="files")))
    assert parts_of_last_miss(shared) == {**STATED, "code": "files"}
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    hiding = open_shared("some", "1.2", shared.cache.path, None)
    again = Asked(code="again")
    hiding.compiling(lambda: hiding.look_up("again", "a kernel", again) or hiding.store("again", b"code"))()
    assert parts_of_last_miss(hiding) == {**STATED, "code": "again"}


def test_parts_that_cannot_be_had_cost_no_more_than_the_answer(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> dict[str, object]:
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, "lockcache")
    shared.compiling(lambda: shared.look_up("k", "a kernel", fail) or shared.store("k", b"code"))()
    assert (shared.has_failed, caplog.messages) == (False, [])
    assert shared.look("k") == b"code"
    assert parts_of_last_miss(shared) == STATED
