# SPDX-License-Identifier: Apache-2.0
"""Whatever an adapter calls, and whatever fails in it, nothing is raised into the framework that it stands in."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, Turn
from lockcache.integrations.adapter import Shared, never_raising
from lockcache.resource import Entry
from tests.crash.failing_calls import KINDS, FailingCalls, failing_calls
from tests.started_with import start_with

__all__ = ["failing_calls"]

FILES = {"kernel.so": b"code", "kernel.json": b"{}"}
PARTS: Callable[[], dict[str, object]] = lambda: {"code": "x"}  # noqa: E731


def _never_raising(shared: Shared) -> None:
    with shared.never_raising():
        raise OSError(errno.EIO, "Input/output error")


def _turn(shared: Shared) -> Turn[Entry]:
    return Turn(lambda value, _: Entry(bytes(value)), _broken)  # type: ignore[call-overload]


def _broken(*_: object, **__: object) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def _hold(shared: Shared) -> None:
    with shared.holding(_turn(shared)):
        pass
    with shared.holding(shared.begin_files("files held", "a module", PARTS)) as turn:
        shared.store_files("files held", FILES, turn)


def _compile(shared: Shared) -> None:
    def compile_() -> None:
        if shared.look_up("compiled", "a kernel", PARTS) is None:
            shared.store("compiled", b"code", label="a kernel")

    shared.compiling(compile_)()


def _renew(shared: Shared) -> None:
    def compile_() -> None:
        shared.renew("k", "a kernel", PARTS)
        shared.store("k", b"code again")

    shared.compiling(compile_)()


#: What adapters call of :class:`Shared`. Each name of it is asked here.
CALLS: dict[str, Callable[[Shared], object]] = {
    "is_storing": lambda shared: shared.is_storing,
    "never_raising": _never_raising,
    "look_up": lambda shared: shared.compiling(lambda: shared.look_up("k", "a kernel", PARTS))(),
    "look": lambda shared: shared.look("k", "a kernel", PARTS),
    "renew": _renew,
    "import_value": lambda shared: shared.import_value("imported", b"code"),
    "is_stored": lambda shared: shared.is_stored("k"),
    "state": lambda shared: shared.state("k", "a kernel", PARTS),
    "store": lambda shared: shared.store("k", b"code"),
    "view": lambda shared: shared.view("files"),
    "view_again": lambda shared: shared.view_again("files"),
    "look_at_files": lambda shared: shared.look_at_files("files"),
    "begin_files": lambda shared: [
        shared.begin_files("files", "a module", PARTS, renews=again) for again in (False, True)
    ],
    "holding": _hold,
    "give_up": lambda shared: shared.give_up(_turn(shared), failed=False),
    "store_files": lambda shared: shared.store_files("files", FILES, shared.begin_files("files")),  # type: ignore[arg-type]
    "note_unshared": lambda shared: shared.note_unshared("a reason", "a kernel"),
    "compiling": _compile,
}


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(never_raising, "_warned", set())


def test_each_call_of_an_adapter_is_asked() -> None:
    assert CALLS.keys() == {name for name in vars(Shared) if not name.startswith("_")}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_stored", [False, True], ids=["cold", "stored"])
def test_no_call_of_an_adapter_raises_where_the_variables_of_the_compilers_have_changed(
    name: str, is_stored: bool, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_with(monkeypatch)
    _prepare(shared, is_stored)
    monkeypatch.setenv("NV_NVVM_VERSION", "other")  # no key can be made from now on
    CALLS[name](shared)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_of_an_adapter_raises_where_every_method_of_the_cache_does(
    name: str, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(shared, True)
    for method in [name for name, value in vars(FileStreamProgramCache).items() if callable(value)]:
        monkeypatch.setattr(shared.cache, method, _broken, raising=False)
    for method in ("get", "begin", "put_entry", "get_files", "_begin_whole", "_replace", "_here"):
        monkeypatch.setattr(shared.cache, method, _broken)
    CALLS[name](shared)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_stored", [False, True], ids=["cold", "stored"])
def test_no_call_of_an_adapter_raises_where_the_directory_has_vanished(
    name: str, is_stored: bool, shared: Shared
) -> None:
    _prepare(shared, is_stored)
    shutil.rmtree(shared.cache.path)
    CALLS[name](shared)


@pytest.mark.slow
# A descriptor that is collected asks whether its number is still its own; where that fails too, Python writes it to
# stderr, and nobody gets it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_stored", [False, True], ids=["cold", "stored"])
def test_no_call_of_an_adapter_raises_whichever_call_of_the_system_fails(
    name: str, is_stored: bool, shared: Shared, failing_calls: FailingCalls
) -> None:
    for kind in KINDS:
        _prepare(shared, is_stored)
        for left in failing_calls.sites(lambda: CALLS[name](shared), kind):
            _prepare(shared, is_stored)
            with failing_calls.failing(kind, left, errno.EIO, goes_on=True):
                CALLS[name](shared)


def _prepare(shared: Shared, is_stored: bool) -> None:
    """Have the entries that the calls ask for, or none; and an adapter that has not failed."""
    shared.has_failed = False
    shared.cache.clear()
    if is_stored:
        shared.store("k", b"code")
        shared.store_files("files", FILES, None)
