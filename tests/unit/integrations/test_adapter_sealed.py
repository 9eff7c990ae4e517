# SPDX-License-Identifier: Apache-2.0
"""Adapters in a sealed process: a framework that catches what its cache raises does not compile all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lockcache
from lockcache import SealedError, Turn
from lockcache.integrations.adapter import Shared, never_raising
from tests.serving_support import logging_all, reports, unsealed_process


@pytest.fixture(autouse=True)
def not_sealed(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(never_raising, "_warned", set())
    logging_all(caplog)
    with unsealed_process():
        yield


class Framework:
    """Compiles as frameworks do: an error of its cache is a warning, and it goes on."""

    def __init__(self, shared: Shared, look: Callable[[str], bytes | None] | None = None) -> None:
        self._shared, self._look = shared, look or (lambda key: shared.look_up(key, "a kernel"))
        self.compiled: list[str] = []
        self.compile = shared.compiling(self._compile)

    def _compile(self, key: str, *, stores: bool = True) -> bytes:
        try:
            found = self._look(key)
        except Exception:  # noqa: BLE001
            found = None
        if found is not None:
            return found
        self.compiled.append(key)
        if stores:
            try:
                self._shared.store(key, b"code of " + key.encode())
            except Exception:  # noqa: BLE001
                logging.getLogger("some").warning("not stored")
        return b"code of " + key.encode()


def test_a_compilation_is_reported_once(shared: Shared, caplog: Any) -> None:
    framework = Framework(shared)
    lockcache.seal()
    assert framework.compile("k") == framework.compile("k") == b"code of k"
    assert framework.compile("kept", stores=False) == b"code of kept"
    assert [report["label"] for report in reports(caplog)] == ["a kernel", "a kernel"]
    assert not shared.has_failed


def test_a_refusal_leaves_the_compilation_past_all_that_catches(shared: Shared, caplog: Any) -> None:
    framework = Framework(shared)
    framework.compile("hit")
    lockcache.seal("error")
    assert framework.compile("hit") == b"code of hit"
    with pytest.raises(SealedError, match="a kernel"):
        framework.compile("k")
    assert framework.compiled == ["hit"]
    assert not shared.has_failed
    with lockcache.unsealed():
        assert framework.compile("k") == b"code of k"


def test_a_refusal_leaves_the_outermost_compilation(shared: Shared) -> None:
    inner = Framework(shared)

    def compile_() -> None:
        try:
            inner.compile("k")
        except Exception:  # noqa: BLE001
            inner.compiled.append("went on")

    lockcache.seal("error")
    with pytest.raises(SealedError):
        shared.compiling(compile_)()
    assert inner.compiled == []
    assert shared._open_scopes() == []


def test_a_lookup_without_a_turn_is_seen_where_the_framework_compiles(shared: Shared, caplog: Any) -> None:
    framework = Framework(shared, lambda key: shared.look(key, "nobody waits for it"))
    lockcache.seal()
    assert framework.compile("k") == framework.compile("k") == b"code of k"
    framework.compile("kept", stores=False)
    assert [report["label"] for report in reports(caplog)] == ["nobody waits for it"] * 2
    assert shared.look("absent") is None
    assert reports(caplog) == []
    lockcache.seal("error")
    assert framework.compile("k") == b"code of k"
    with pytest.raises(SealedError):
        framework.compile("other")
    assert framework.compiled == ["k", "kept"]


def test_files_are_seen(shared: Shared, caplog: Any) -> None:
    lockcache.seal()
    turn = shared.begin_files("k", "a module")
    assert isinstance(turn, Turn)
    shared.store_files("k", {"a": b"1"}, turn)
    assert shared.begin_files("k") == {"a": b"1"}
    shared.store_files("tuned", {"a": b"1"}, None)
    assert [report["label"] for report in reports(caplog)] == ["a module", "some/1.2/tuned"]
    lockcache.seal("error")
    with pytest.raises(SealedError, match="a module"):
        shared.begin_files("other", "a module")
    with pytest.raises(SealedError):
        shared.store_files("tuned again", {"a": b"1"}, None)
    assert not shared.has_failed


def test_what_only_the_frameworks_own_cache_keeps_is_seen_when_it_was_compiled(shared: Shared, caplog: Any) -> None:
    lockcache.seal()
    shared.note_unshared("the framework may find it")
    shared.note_unshared("the end of its turn is reported", "a kernel", had_turn=True)
    shared.note_unshared("it names an object", "a kernel")
    [report] = reports(caplog)
    assert (report["label"], report["why"]) == ("a kernel", "it cannot be shared: it names an object")
    lockcache.seal("error")
    compiled = []

    @shared.compiling
    def compile_() -> None:
        compiled.append("k")
        try:
            shared.note_unshared("it names an object", "a kernel")
        except Exception:  # noqa: BLE001
            compiled.append("went on")

    with pytest.raises(SealedError, match="a kernel was compiled: it cannot be shared"):
        compile_()
    assert compiled == ["k"]
    assert not shared.has_failed


def test_what_is_imported_is_no_compilation(shared: Shared, caplog: Any) -> None:
    lockcache.seal("error")
    shared.import_value("k", b"code", arch="sm_90")
    assert shared.look("k") == b"code"
    assert reports(caplog) == []


def test_a_report_and_a_refusal_name_the_part_of_the_key_that_differs(shared: Shared, caplog: Any) -> None:
    framework = Framework(shared, lambda key: shared.look_up(key, "a kernel", lambda: {"code": "x", "constant N": key}))
    framework.compile("4")
    lockcache.seal("warn")
    framework.compile("8")
    [report] = reports(caplog)
    assert report["why"].startswith("differs from a kernel (")
    assert report["why"].endswith(") in constant N: 8 / 4")
    lockcache.seal("error")
    with pytest.raises(SealedError, match="in constant N: 16 / "):
        framework.compile("16")
    with pytest.raises(SealedError, match="in constant N: 32 / "):
        shared.begin_files("32", "a module", lambda: {"code": "x", "constant N": 32})
