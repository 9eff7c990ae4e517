# SPDX-License-Identifier: Apache-2.0
"""Notifications of the service manager, on a real datagram socket, by a real daemon."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache_daemon.run.systemd import Notifier
from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon


class Manager:
    """A service manager's end of ``sd_notify``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(b"\0" + address[1:].encode() if address.startswith("@") else address)
        self._socket.settimeout(HANG_SECONDS)

    def hear(self) -> dict[str, str]:
        """The next message."""
        return dict(line.split("=", 1) for line in self._socket.recv(65536).decode().split("\n"))

    def hear_of(self, name: str) -> dict[str, str]:
        """The next message with this assignment."""
        while name not in (said := self.hear()):
            pass
        return said

    def is_silent(self) -> bool:
        self._socket.settimeout(0)
        try:
            self._socket.recv(65536)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(HANG_SECONDS)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    name = (
        tmp_path / "notify"
        if getattr(request, "param", "path") == "path"
        else f"@lockcache-test-{os.getpid()}-{time.monotonic_ns()}"
    )
    made = Manager(str(name))
    monkeypatch.setenv("NOTIFY_SOCKET", made.address)
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("manager", ["path", "abstract"], indirect=True)
def test_ready_is_said_once_the_directories_are_kept_and_stopping_at_the_end(
    manager: Manager, cache_path: Path
) -> None:
    with RunningDaemon("--max-size", "1M", cache_path) as daemon:
        ready = manager.hear()
        assert ready == {"READY": "1", "STATUS": f"{cache_path}: 0 B in 0 entries"}
        assert (cache_path / "lockcache" / "daemon.json").exists()
        assert daemon.end(signal.SIGTERM) == 0
    assert manager.hear_of("STOPPING")["STOPPING"] == "1"


@pytest.mark.long
def test_a_daemon_that_cannot_start_never_says_that_it_is_ready(manager: Manager, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    daemon = RunningDaemon("--max-size", "1M", file, starts=0)
    with daemon:
        assert daemon.process.wait(HANG_SECONDS) == 2
    assert manager.is_silent()


@pytest.mark.long
def test_a_reload_is_said_with_its_time_and_then_that_all_is_ready_also_if_it_was_refused(
    manager: Manager, cache_path: Path, tmp_path: Path
) -> None:
    config = tmp_path / "lockcache.toml"
    config.write_text('max_size = "1M"\n')
    with RunningDaemon("--config", config, cache_path) as daemon:
        manager.hear_of("READY")
        for text in ('max_size = "2M"\n', "max_size = nonsense\n"):
            config.write_text(text)
            before = time.monotonic_ns() // 1000
            daemon.process.send_signal(signal.SIGHUP)
            assert before <= int(manager.hear_of("RELOADING")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert manager.hear_of("READY")["READY"] == "1"


def test_a_manager_that_is_gone_or_does_not_read_costs_messages_alone(manager: Manager) -> None:
    with Notifier() as notifier:
        for number in range(10_000):
            notifier.ready(f"number {number}")
        assert notifier.lost_messages > 0
    manager.close()
    with Notifier() as notifier:
        notifier.ready("nobody hears")


def test_a_status_can_be_nothing_but_a_status(manager: Manager) -> None:
    with Notifier() as notifier:
        notifier.ready("/a\nMAINPID=1\x00\x1b[31m: " + "x" * 1000)
    assert set(said := manager.hear()) == {"READY", "STATUS"}
    assert said["STATUS"].startswith("/a?MAINPID=1??[31m: x")
    assert len(said["STATUS"]) == 400


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "vsock:2:1234"},
        {"NOTIFY_SOCKET": "/nowhere/at/all"},
        {"NOTIFY_SOCKET": "/" + "x" * 200},
    ],
)
def test_without_a_manager_that_can_be_reached_nothing_happens(environment: dict[str, str]) -> None:
    with Notifier({**environment, "WATCHDOG_USEC": "1000000"}) as notifier:
        notifier.ready("a")
        notifier.alive()
        notifier.status("b")
        assert (notifier.alive_seconds, notifier.lost_messages) == (None, 0)


@pytest.mark.parametrize(
    "watchdog, seconds",
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_signs_of_life_are_due_at_half_of_what_the_manager_waits(
    manager: Manager, watchdog: dict[str, str], seconds: float | None
) -> None:
    with Notifier({"NOTIFY_SOCKET": manager.address, **watchdog}) as notifier:
        assert notifier.alive_seconds == seconds
