# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong with a server, its holder or a child, every caller has its code."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache.compile_server import Mode, ask, asking, open_place, read_state, starting, wire
from tests.cuda.compile_server.programs import children_of, compiled, is_running, kernel, request

pytestmark = [pytest.mark.cuda, pytest.mark.slow]

#: Compiles one kernel after another as many as it is asked for, each in a new cache.
CALLER = """
import pathlib, sys, tempfile
from tests.cuda.compile_server.programs import compiled, kernel
print("ready", flush=True)
first = int(sys.argv[1])
for number in range(first, first + int(sys.argv[2])):
    with tempfile.TemporaryDirectory() as folder:
        code = compiled(kernel(number), pathlib.Path(folder) / "c", "on").code
        assert code[1:4] == b"ELF", code[:20]
print("done", flush=True)
"""


def caller(first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CALLER, str(first), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])},
    )


@contextlib.contextmanager
def silent_caller() -> Iterator[socket.socket]:
    """A caller that was taken, and says nothing more."""
    with open_place() as opened, opened.connect(1.0) as connection:
        wire.send(connection, {"ask": "compile", "mode": "on", **request()._asdict()})
        said = wire.receive_head(connection, time.monotonic() + 5)
        assert said["state"] == "taken"
        assert said["seconds"] <= 15  # as the guide has it
        yield connection


def held() -> int:
    state = read_state()
    assert state is not None
    [holder] = children_of(state["pid"])
    return holder


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["server", "holder", "child"])
def test_a_kill_at_any_time_costs_no_caller_its_code(place: Path, tmp_path: Path, victim: str) -> None:
    compiled(kernel(0), tmp_path / "first", "on")
    killed = 0
    with caller(1000, 8) as one, caller(2000, 8) as other:
        callers = [one, other]
        for each in callers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        killed = kill_while(callers, victim)
        for each in callers:
            assert each.stdout is not None
            assert each.stdout.read() == "done\n"
            assert each.wait() == 0
    assert killed


def kill_while(callers: list[subprocess.Popen[str]], victim: str) -> int:
    """Kill all processes of a kind again and again until the callers have ended. Returns how many."""
    killed = 0
    while any(each.poll() is None for each in callers):
        state = read_state()
        server = state["pid"] if state else 0
        holders = children_of(server)
        pids = {"server": [server], "holder": holders, "child": [pid for each in holders for pid in children_of(each)]}
        for pid in filter(None, pids[victim]):
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        time.sleep(0.05)  # in between, others get some way
    return killed


def test_a_dead_server_is_replaced(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(kernel(0), tmp_path / "first", "on")
    before = read_state()
    assert before is not None
    holders = children_of(before["pid"])
    os.kill(before["pid"], signal.SIGKILL)
    plain = compiled(kernel(1), tmp_path / "off", "off")
    monkeypatch.setattr(asking, "_rests_until", 0.0)
    assert compiled(kernel(1), tmp_path / "second", "on") == plain
    after = read_state()
    assert after is not None
    assert after["pid"] != before["pid"]
    wait_until(lambda: not any(map(is_running, holders)))


def test_a_server_that_is_told_to_end_leaves_no_files(place: Path, tmp_path: Path) -> None:
    compiled(kernel(0), tmp_path / "first", "on")
    state = read_state()
    assert state is not None
    opened = map(os.readlink, Path(f"/proc/{state['pid']}/fd").iterdir())
    [folder] = [Path(path).parent for path in opened if path.endswith(".work/lock")]
    assert list(folder.glob("*/head.pch"))
    os.kill(state["pid"], signal.SIGTERM)
    wait_until(lambda: not is_running(state["pid"]))
    assert not folder.exists()


def test_a_stopped_holder_and_its_stopped_child_end_with_the_server(place: Path, tmp_path: Path) -> None:
    compiled(kernel(0), tmp_path / "first", "on")
    state = read_state()
    assert state is not None
    holder = held()
    with silent_caller():  # its child waits for what it has
        # Asleep: it is past what it does first, which is to tie itself to its holder.
        wait_until(lambda: bool(children_of(holder)) and all(map(is_asleep, children_of(holder))))
        stopped = [*children_of(holder), holder]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        os.kill(state["pid"], signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, stopped)))


@pytest.mark.parametrize("is_first", [True, False])
def test_a_caller_that_was_taken_and_stops_keeps_nobody_waiting(
    place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path, is_first: bool
) -> None:
    started(told_seconds=0.2, at_once=1)
    if not is_first:
        compiled(kernel(0), tmp_path / "first", "on")
    with silent_caller() as connection:
        connection.settimeout(60)
        while connection.recv(1024):  # a child says that it is there
            pass
        assert compiled(kernel(1), tmp_path / "on", "on") == compiled(kernel(1), tmp_path / "off", "off")


def test_a_server_that_stops_after_it_took_a_request_is_noticed(
    place: Path, started: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lockcache")
    pid = started(at_once=1)["pid"]

    def evidence() -> bytes:
        os.kill(pid, signal.SIGSTOP)
        return b""

    try:
        with silent_caller():  # which has the only slot
            assert ask(request()._replace(name="other"), kernel(1).encode(), (), Mode.ON, evidence) is None
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "is stopped" in caplog.text  # and not: no answer in time


def test_whoever_waits_for_a_holder_that_was_made_later_notices_that_it_is_stopped(
    place: Path, started: Callable[..., dict[str, Any]]
) -> None:
    pid = started(at_once=1)["pid"]
    with silent_caller() as busy, open_place() as opened:  # which has the only slot
        before, asked = children_of(pid), {"ask": "compile", "mode": "on", **request()._replace(name="other")._asdict()}
        with opened.connect(1.0) as first, opened.connect(1.0) as second:
            for connection in (first, second):
                wire.send(connection, asked)
                said = wire.receive_head(connection, time.monotonic() + 5)
            busy.close()
            wait_until(lambda: bool({*children_of(pid)} - {*before}))
            for holder in {*children_of(pid)} - {*before}:
                os.kill(holder, signal.SIGSTOP)
            # Or the server, to which a holder that was stopped before it had begun is one that failed, says so first.
            with pytest.raises(OSError, match=r"is stopped|the connection ended"):
                asking._receive(second, time.monotonic() + 600, said)


def test_a_hung_child_is_noticed_and_killed(
    place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    started(child_seconds=0.5)
    compiled(kernel(0), tmp_path / "first", "on")
    holder = held()
    with silent_caller() as connection:  # its child waits for what it has
        wait_until(lambda: bool(children_of(holder)) and all(map(is_asleep, children_of(holder))))
        [child] = children_of(holder)
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(OSError, match="is stopped"):
            asking._receive(connection, time.monotonic() + 600, {"state": "taken"})
    wait_until(lambda: not is_running(child))


def test_a_starter_has_no_child_left(place: Path, started: Callable[..., dict[str, Any]]) -> None:
    before = {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    server = started()["pid"]

    def has_none() -> bool:
        now = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
        return set(now) <= before

    wait_until(has_none)
    assert is_running(server)


HANG_IN = """
from lockcache.compile_server import holder, server
from lockcache.compile_server.nvrtc import Nvrtc
"""


@pytest.mark.parametrize("victim", ["server", "answering", "holder", "child", "starting"])
def test_one_that_hangs_without_being_stopped_is_noticed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, victim: str
) -> None:
    caplog.set_level(logging.DEBUG, "lockcache")
    sleep = "lambda *_, **__: time.sleep(1000)"
    hang = {
        "server": f"server.Server._dispatch = {sleep}",
        "answering": f"server.Server._answer = {sleep}",
        "holder": f"Nvrtc.create_header = {sleep}",
        "child": f"holder.Holder.answer = {sleep}",
        "starting": "time.sleep(1000)",
    }[victim]
    first = "import json; sys.path[:] = json.loads(sys.argv[1])\n"
    assert first in starting._PROGRAM
    monkeypatch.setattr(
        starting, "_PROGRAM", starting._PROGRAM.replace(first, f"{first}import time\n{HANG_IN}{hang}\n")
    )
    served = compiled(kernel(1), tmp_path / "on", "on")
    [pid] = [int(path.read_text().split()[0]) for path in (place / "lockcache").glob("*.lock")]
    os.kill(pid, signal.SIGKILL)
    assert served == compiled(kernel(1), tmp_path / "off", "off")
    assert "does nothing" in caplog.text  # and not: no answer in time


def test_a_hung_server_and_a_hung_holder_cost_little(place: Path, tmp_path: Path) -> None:
    compiled(kernel(0), tmp_path / "first", "on")
    state = read_state()
    assert state is not None
    os.kill(state["pid"], signal.SIGSTOP)
    try:
        assert compiled(kernel(1), tmp_path / "second", "on") == compiled(kernel(1), tmp_path / "off", "off")
    finally:
        os.kill(state["pid"], signal.SIGCONT)


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE])
def test_without_memory_disk_or_descriptors_callers_compile(
    place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path, limit: int
) -> None:
    state = started()
    low = {resource.RLIMIT_AS: 200 << 20, resource.RLIMIT_FSIZE: 1 << 20, resource.RLIMIT_NOFILE: 3}[limit]
    before = resource.prlimit(state["pid"], limit, (low, resource.prlimit(state["pid"], limit)[1]))
    try:
        served = compiled(kernel(1), tmp_path / "on", "on")
        assert served == compiled(kernel(1), tmp_path / "off", "off")
        wait_until(lambda: all(is_asleep(state["pid"]) for _ in range(20)))  # as one that tries again never is
    finally:
        resource.prlimit(state["pid"], limit, before)  # so that it hears that it is to stop


def test_a_flood_of_requests_is_bounded(place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    started(unread=8, waiting=2)
    with open_place() as opened, contextlib.ExitStack() as silent:
        for _ in range(40):
            silent.enter_context(opened.connect(1.0))
        for text in (b"\0\0\0\2{}", b"\xff" * 8, b"\0\0\0\5[[[[[", b"\0\0\0\x10" + b'{"ask": "compile'):
            # The server has closed it by then, where it got to this one before: the others are as many as it keeps.
            with opened.connect(1.0) as connection, contextlib.suppress(BrokenPipeError):
                connection.sendall(text)
        served = compiled(kernel(1), tmp_path / "on", "on")
    assert served == compiled(kernel(1), tmp_path / "off", "off")
    assert read_state() is not None


def test_a_request_that_is_none_is_refused(place: Path, started: Callable[..., dict[str, Any]]) -> None:
    started()
    for asked in ({"library": 5}, {"mode": "sometimes"}, {"ask": "else"}, {"options": [5]}, {"target": "exe"}):
        with open_place() as opened, opened.connect(1.0) as connection:
            wire.send(connection, {"ask": "compile", "mode": "on", **asked})
            connection.settimeout(10)
            assert connection.recv(1) == b""
    state = read_state()
    assert state is not None
    assert state["prefixes"] == []


def test_a_message_is_bounded(place: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall((wire.MOST_HEAD_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises(OSError, match="too long"):
            wire.receive_head(theirs, time.monotonic() + 5)
    with pytest.raises(OSError, match="too long"):
        wire.pack_head({"text": "x" * wire.MOST_HEAD_BYTES})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for lengths in ([-1], [1 << 40], [0] * 9, "five", [True]):
            text = json.dumps({"blobs": lengths}).encode()
            ours.sendall(len(text).to_bytes(4, "big") + text)
            head = wire.receive_head(theirs, time.monotonic() + 5)
            with pytest.raises(OSError, match="without lengths"):
                wire.receive_blobs(theirs, head, time.monotonic() + 5)


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)
