# SPDX-License-Identifier: Apache-2.0
"""When a process is sealed: by a call, by variables, after a time, and not while it reloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockcache
from lockcache import FileStreamProgramCache, InMemoryProgramCache, SealedError
from lockcache.serving import state
from lockcache.serving.state import watch
from tests.serving_support import logging_all, reports, unsealed_process
from tests.unit.forked import in_child


@pytest.fixture(autouse=True)
def not_sealed(caplog: Any) -> Iterator[None]:
    logging_all(caplog)
    with unsealed_process():
        yield


def is_sealed() -> bool:
    return watch.current() is not None


@pytest.mark.parametrize(
    "mode, error", [("wran", ValueError), ("", ValueError), (None, TypeError), (1, TypeError), (True, TypeError)]
)
def test_another_mode_is_refused_by_its_value(mode: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"mode must be 'log', 'warn' or 'error', got {mode!r}"):
        lockcache.seal(mode)
    assert not is_sealed()


@pytest.mark.parametrize("misses, error", [("", ValueError), (5, TypeError), ("a\0b", ValueError)])
def test_a_file_that_cannot_be_one_is_refused(misses: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="misses must"):
        lockcache.seal(misses=misses)
    assert not is_sealed()


def test_a_process_is_not_sealed_by_itself_and_a_call_seals_and_unseals_it() -> None:
    assert not watch.is_on
    lockcache.seal()
    assert is_sealed()
    lockcache.unseal()
    assert not watch.is_on
    lockcache.unseal()


def test_a_reload_compiles_in_all_threads_and_then_the_seal_is_back() -> None:
    cache = InMemoryProgramCache()
    lockcache.seal("error")
    with lockcache.unsealed():
        cache.get_or_compute("a", lambda: b"a")
        with lockcache.unsealed():
            cache["b"] = b"b"
        thread = threading.Thread(target=lambda: cache.get_or_compute("c", lambda: b"c"))
        thread.start()
        thread.join()
    assert len(cache) == 3
    with pytest.raises(SealedError):
        cache.get_or_compute("d", lambda: b"d")


def test_an_interrupt_at_the_beginning_of_a_reload_does_not_lift_the_seal_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(list[Any]):
        def append(self, lift: Any) -> None:
            super().append(lift)
            raise KeyboardInterrupt

    lockcache.seal()
    monkeypatch.setattr(watch, "lifted_by", Interrupted())
    with pytest.raises(KeyboardInterrupt), lockcache.unsealed():
        pass
    assert is_sealed()


def test_a_call_in_a_reload_counts_after_it() -> None:
    with lockcache.unsealed():
        lockcache.seal("error")
        assert not is_sealed()
    assert is_sealed()


def test_a_forked_child_is_sealed_as_its_parent_is() -> None:
    lockcache.seal("error")

    def compile_() -> bool:
        try:
            InMemoryProgramCache().get_or_compute("k", lambda: b"code")
        except SealedError:
            return True
        return False

    assert in_child(compile_)
    with lockcache.unsealed():
        assert not in_child(compile_), "the child was forked in the block"
        assert not in_child(is_sealed)


def test_a_child_is_not_kept_unsealed_by_a_thread_that_it_does_not_have() -> None:
    lockcache.seal("error")
    began, done = threading.Event(), threading.Event()

    def reload() -> None:
        with lockcache.unsealed():
            began.set()
            done.wait(60)

    thread = threading.Thread(target=reload)
    thread.start()
    assert began.wait(60)
    try:
        assert not is_sealed()
        assert in_child(is_sealed)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("mode", ["log", "warn", "error"])
def test_the_variable_seals_when_a_cache_is_made(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_SEALED", mode)
    assert not watch.is_on
    InMemoryProgramCache()
    assert watch.current() == (mode, "")


def test_a_call_counts_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_SEALED", "error")
    lockcache.unseal()
    InMemoryProgramCache()
    assert not is_sealed()
    lockcache.seal("log")
    InMemoryProgramCache()
    assert watch.current() == ("log", "")


@pytest.mark.parametrize(
    "name, value, what",
    [
        ("LOCKCACHE_SEALED", "1", "'1' is not log or warn or error"),
        ("LOCKCACHE_SEAL_AFTER", "soon", "'soon' is not a duration"),
        ("LOCKCACHE_SEAL_AFTER", "-1", "'-1' is not a duration"),
        ("LOCKCACHE_SEAL_AFTER", "nan", "'nan' is not a duration"),
        ("LOCKCACHE_SEAL_AFTER", "inf", "'inf' is not a duration"),
    ],
)
def test_a_wrong_variable_is_an_error_that_names_it(
    name: str, value: str, what: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_SEALED", "warn")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}: {what}"):
        FileStreamProgramCache(cache_path)
    with pytest.raises(ValueError, match=name):
        InMemoryProgramCache()


@pytest.mark.parametrize("after, seconds", [("90", 90.0), ("1.5", 1.5), ("2m", 120.0)])
def test_warm_up_lasts_from_the_first_cache_on(
    after: str, seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(state.time, "monotonic", lambda: clock[0])
    monkeypatch.setenv("LOCKCACHE_SEALED", "warn")
    monkeypatch.setenv("LOCKCACHE_SEAL_AFTER", after)
    cache = InMemoryProgramCache()
    clock[0] += seconds - 0.1
    InMemoryProgramCache()["later"] = b"code"
    cache.get_or_compute("in time", lambda: b"code")
    assert reports(caplog) == []
    clock[0] += 0.2
    cache.get_or_compute("too late", lambda: b"code")
    assert [report["label"] for report in reports(caplog)] == ["too late"]
    clock[0] = 0.0
    assert is_sealed(), "it stays"


def test_a_manifest_that_is_being_fetched_delays_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_SEALED", "error")
    monkeypatch.setenv("LOCKCACHE_SEAL_AFTER", "manifest")
    InMemoryProgramCache()
    served: list[bool] = []
    watch.await_prefetch(lambda: bool(served))
    assert not is_sealed()
    served.append(True)
    assert is_sealed()


def test_without_caches_there_is_nothing_to_seal(monkeypatch: pytest.MonkeyPatch, cache_path: Path) -> None:
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    lockcache.seal("error")
    assert InMemoryProgramCache().get_or_compute("k", lambda: b"code") == b"code"
    assert FileStreamProgramCache(cache_path).get_or_compute("k", lambda: b"code") == b"code"
