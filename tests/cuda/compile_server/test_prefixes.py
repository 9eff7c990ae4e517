# SPDX-License-Identifier: Apache-2.0
"""Prefixes: from when on they are held, when they end, and that a difference ends one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.arguments import warn_once
from lockcache.compile_server import Mode, ask, read_state
from tests.cuda.compile_server.programs import children_of, compiled, is_running, kernel, request

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("patient")]

Started = Callable[..., dict[str, Any]]


def state_when(is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + 60
    while True:
        state = read_state()
        assert state is not None
        assert time.monotonic() < until, state
        if is_so(state):
            return state
        time.sleep(0.01)


def own_header(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "own.h").write_text(text)
    then = time.time() - 60  # one that was not changed just now
    os.utime(folder / "own.h", (then, then))


@pytest.mark.slow
def test_auto_holds_a_prefix_from_its_second_program_on(place: Path, started: Started, tmp_path: Path) -> None:
    started()
    for number, expected in ((1, 0), (2, 1), (3, 2)):
        compiled(kernel(number), tmp_path / str(number), "auto")
        state_when(lambda state, expected=expected: state["compiled"] == expected)  # type: ignore[misc]


def test_a_program_without_includes_starts_nothing(place: Path, tmp_path: Path) -> None:
    compiled('extern "C" __global__ void k() {}', tmp_path / "cache", "on")
    assert read_state() is None
    assert not list(place.iterdir())


def test_a_program_that_only_hits_starts_nothing(place: Path, tmp_path: Path) -> None:
    compiled(kernel(1), tmp_path / "cache", "off")
    from lockcache import FileStreamProgramCache
    from tests.cuda.compile_server.programs import Program, ProgramOptions, cudart

    with FileStreamProgramCache(tmp_path / "cache") as cache:
        options = ProgramOptions(arch="sm_90", include_path=cudart())
        Program(kernel(1), "c++", options).compile("cubin", cache=cache)
        assert cache.stats().hits == 1
    assert read_state() is None


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_a_header_that_changes_ends_its_prefix(place: Path, tmp_path: Path) -> None:
    source = '#include "own.h"\nextern "C" __global__ void k(int *x) { *x = VALUE; }'
    options = {"include_path": os.fspath(tmp_path / "include")}
    for value in (1, 2):
        own_header(tmp_path / "include", f"#define VALUE {value}\n")
        served = compiled(source, tmp_path / f"on{value}", "on", **options)
        assert served == compiled(source, tmp_path / f"off{value}", "off", **options)
        # The first one of a holder that sees a change is compiled by its caller.
        assert compiled(source, tmp_path / f"on{value} again", "on", **options) == served
        state_when(lambda state, value=value: state["compiled"] == 1 + value)  # type: ignore[misc]


@pytest.mark.slow
def test_a_header_that_was_just_changed_is_not_held(place: Path, tmp_path: Path) -> None:
    own_header(tmp_path / "include", "#define VALUE 5\n")
    source = '#include "own.h"\nextern "C" __global__ void k(int *x) { *x = VALUE; }'
    options = {"include_path": os.fspath(tmp_path / "include")}
    assert compiled(source, tmp_path / "on", "on", **options) == compiled(source, tmp_path / "off", "off", **options)
    state = state_when(lambda state: bool(state["prefixes"]))
    assert state["prefixes"][0]["state"] == "refused"
    assert "just now" in state["prefixes"][0]["why"]


def test_after_a_caller_that_left_the_next_one_is_served(place: Path, started: Started, tmp_path: Path) -> None:
    started()

    def evidence() -> bytes:
        raise KeyboardInterrupt  # of a caller that was acknowledged: its connection ends

    with pytest.raises(KeyboardInterrupt):
        ask(request(), kernel(1).encode(), (), Mode.ON, evidence)
    state_when(lambda state: bool(state["prefixes"]) and state["prefixes"][0]["state"] == "refused")
    compiled(kernel(1), tmp_path / "on", "on")
    assert state_when(lambda state: state["compiled"] == 1)["failed"] <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_headers_that_warn_are_not_held(place: Path, tmp_path: Path) -> None:
    own_header(tmp_path / "include", "#warning once\n")
    options = {"include_path": os.fspath(tmp_path / "include")}
    source = '#include "own.h"\nextern "C" __global__ void k() {}'
    served = compiled(source, tmp_path / "on", "on", **options)
    assert served == compiled(source, tmp_path / "off", "off", **options)
    assert "once" in served.log
    state = state_when(lambda state: bool(state["prefixes"]))
    assert "warnings" in state["prefixes"][0]["why"]


@pytest.mark.slow
def test_the_one_unused_for_the_longest_makes_room(place: Path, started: Started, tmp_path: Path) -> None:
    state = started(holders=1, kept_seconds=0.0)
    for number, macro in enumerate(("A", "B")):
        compiled(kernel(1), tmp_path / str(number), "on", define_macro=macro)
        assert len(children_of(state["pid"])) == 1
        # The server has heard that its child has ended: a holder with a job makes no room.
        held = state_when(lambda state, number=number: state["compiled"] == number + 1)["prefixes"]  # type: ignore[misc]
    assert [each["state"] for each in held] == ["ready"]


@pytest.mark.slow
def test_prefixes_that_take_turns_do_not_drive_each_other_out(place: Path, started: Started, tmp_path: Path) -> None:
    state = started(holders=1)
    for number in range(4):
        compiled(kernel(number), tmp_path / str(number), "on", define_macro="AB"[number % 2])
    found = state_when(lambda state: state["compiled"] == 2)
    assert found["left"] == 2
    assert len(children_of(state["pid"])) == 1


@pytest.mark.slow
def test_one_that_takes_too_much_memory_is_not_used(place: Path, started: Started, tmp_path: Path) -> None:
    started(resident_bytes=1 << 20)
    compiled(kernel(1), tmp_path / "on", "on")
    [prefix] = state_when(lambda state: bool(state["prefixes"]))["prefixes"]
    assert prefix["state"] == "refused"
    assert "resident" in prefix["why"]


@pytest.mark.slow
def test_a_server_ends_when_it_is_idle_and_leaves_nothing(place: Path, started: Started, tmp_path: Path) -> None:
    first = started(idle_seconds=0.5)["pid"]
    compiled(kernel(1), tmp_path / "on", "on")
    until = time.monotonic() + 60
    while is_running(first):
        assert time.monotonic() < until
        time.sleep(0.05)
    if read_state() is None:  # else it had ended before there was a program, and another was started
        [folder] = place.iterdir()
        assert [each.suffix for each in folder.iterdir()] == [".lock"]


@pytest.mark.slow
def test_a_compilation_is_repeated_and_compared(place: Path, started: Started, tmp_path: Path) -> None:
    started(check_every=1)
    for number in (1, 2, 3):
        compiled(kernel(number), tmp_path / str(number), "on")
    state = state_when(lambda state: state["checked"] == 2)  # the first of a prefix is not
    assert state["differences"] == 0


@pytest.mark.slow
def test_a_difference_ends_the_prefix_and_is_told(
    place: Path, started: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NVRTC gives no difference, so the comparison of this server is given a source whose compilations differ: a header
    # that is computed from the clock could, were it not refused. A holder that takes digests of nothing is such a one.
    warn_once.cache_clear()
    from lockcache.compile_server import holder

    source = Path(holder.__file__).read_text()
    assert "check.compare(digest(found))" in source
    other = tmp_path / "changed"
    package = Path(holder.__file__).parents[2]
    import shutil

    shutil.copytree(package / "lockcache", other / "lockcache", ignore=shutil.ignore_patterns("__pycache__"))
    changed = other / "lockcache/compile_server/holder.py"
    changed.write_text(source.replace("check.compare(digest(found))", 'check.compare(b"another")'))
    monkeypatch.syspath_prepend(os.fspath(other))
    started(check_every=1)
    for number in (1, 2):
        compiled(kernel(number), tmp_path / str(number), "on")
    state = state_when(lambda state: state["differences"] == 1)
    assert state["prefixes"][0]["state"] == "off"
    with caplog.at_level(logging.WARNING, "lockcache"):
        compiled(kernel(3), tmp_path / "3", "on")
    assert "compile server is off" in caplog.text


def test_a_directory_that_gets_anothers_name_has_its_own_headers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("here", 111), ("next", 222)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.h").write_text(f"#define OWN {number}\n")
    monkeypatch.chdir(tmp_path / "here")
    compiled(kernel(1), tmp_path / "first", "on")
    (tmp_path / "here").rename(tmp_path / "before")
    (tmp_path / "next").rename(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    source = f'{kernel(2)}\n#include "own.h"\nextern "C" __global__ void o(int *x) {{ *x = OWN; }}\n'
    assert compiled(source, tmp_path / "on", "on") == compiled(source, tmp_path / "off", "off")


def test_a_directory_is_nobodys_between_compilations(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        compiled(kernel(number), tmp_path / str(number), "on")
        state = read_state()
        assert state is not None
        [holder] = children_of(state["pid"])
        assert os.readlink(f"/proc/{holder}/cwd") == "/"
