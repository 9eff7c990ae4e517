# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP server: what it answers, what it refuses, and that no client can hurt the daemon."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache_daemon.observe import board as board_module, http_server
from lockcache_daemon.observe.board import Board
from lockcache_daemon.observe.http_server import WebServer
from lockcache_daemon.settings.values import Address, AddressError, listen, parse_address
from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon, until
from tests.daemon.directories import bytes_on_disk, fill
from tests.daemon.http_client import Watched, get


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def server(board: Board) -> Iterator[WebServer]:
    complaints: list[str] = []
    serving = WebServer(listen(Address("127.0.0.1", 0)), board, complaints.append)
    serving.start()
    yield serving
    serving.close()
    assert complaints == []


@pytest.fixture
def port(server: WebServer) -> int:
    number: int = server._listening.getsockname()[1]
    return number


def raw(port: int, request: bytes) -> bytes:
    """Returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), HANG_SECONDS) as client:
        with contextlib.suppress(ConnectionError):  # it may have heard enough
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65536):
                parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/status.json", "/healthz?verbose=1"])
def test_get_and_head_of_each_path(port: int, path: str) -> None:
    status, headers, body = get(port, path)
    assert (status, int(headers["Content-Length"])) == (200, len(body))
    assert body
    status, head_headers, nothing = get(port, path, method="HEAD")
    assert (status, nothing, head_headers["Content-Type"]) == (200, b"", headers["Content-Type"])


def test_another_path_says_what_there_is(port: int) -> None:
    status, _, body = get(port, "/../../etc/passwd")
    assert (status, body) == (404, b"nothing here; there is: /, /metrics, /healthz, /status.json\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_other_methods_are_refused(port: int, method: str) -> None:
    said = raw(port, f"{method} / HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"Allow: GET, HEAD\r\n" in said


@pytest.mark.parametrize(
    "request_text",
    ["GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n", "\x16\x03\x01\r\n\r\n"],
)
def test_what_is_no_request_is_refused(port: int, request_text: str) -> None:
    assert raw(port, request_text.encode("latin-1")).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_request_without_end_is_refused(port: int) -> None:
    said = raw(port, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000)
    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")
    assert get(port, "/healthz")[0] == 200


def test_a_client_that_says_nothing_is_let_go(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CLIENT_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", port), HANG_SECONDS) as client:
        assert client.recv(1) == b""


def test_a_client_that_never_reads_is_let_go(
    server: WebServer, port: int, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_CLIENT_SECONDS", 0.2)
    for number in range(5000):  # an answer that does not fit into the sockets' buffers
        board.failed(f"/{number}", "x" * 1000)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(HANG_SECONDS)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /status.json HTTP/1.1\r\n\r\n")
        received = 0
        assert get(port, "/none")[0] == 404  # who came after it was served
        until(lambda: not server._places)  # what is left in the buffers is all there is
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65536):
                received += len(part)
    assert received < 5_000_000


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\n"])
def test_who_holds_all_places_keeps_nobody_out(port: int, begun: bytes) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), HANG_SECONDS)) for _ in range(70)]
        for one in held:
            with contextlib.suppress(ConnectionError):
                one.sendall(begun)
        for _ in range(20):
            assert get(port, "/metrics")[0] == 200
        with contextlib.suppress(ConnectionError):
            assert held[0].recv(1) == b""  # the idlest made room
        held[-1].sendall(b"GET /healthz HTTP/1.1\r\n"[len(begun) :] + b"\r\n")
        assert held[-1].recv(12) == b"HTTP/1.1 200"  # and who came last did not have to


def test_an_address_that_holds_most_places_loses_one_and_not_who_has_few(port: int) -> None:
    with contextlib.ExitStack() as stack:

        def connect(address: str) -> socket.socket:
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", port), HANG_SECONDS, source_address=(address, 0))
            )

        few = [connect("127.0.0.2") for _ in range(4)]
        many = [connect("127.0.0.3") for _ in range(100)]
        with contextlib.suppress(ConnectionError):
            assert many[0].recv(1) == b""
        for one in few:  # idle for longer than any of the others
            one.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost", 200), ("LOCALHOST:9477", 200), ("127.0.0.1", 200), ("127.0.0.1:1", 200), ("[::1]", 200),
        ("[::1]:9477", 200), ("127.8.8.8:80", 200), ("", 200), ("node-7", 200), ("localhost.:80", 200),
        ("evil.example", 421), ("evil.example:9477", 421), ("127.0.0.1.evil.example", 421), ("10.0.0.1", 421),
        ("[2001:db8::1]:80", 421), ("localhost.evil.example", 421), ("\x1b[1m", 421), ("[", 421),
    ],
)  # fmt: skip
def test_on_loopback_who_asks_for_another_host_is_refused(board: Board, host: str, status: int) -> None:
    serving = WebServer(listen(Address("127.0.0.1", 0)), board, lambda _: None, ("node-7",))
    serving.start()
    with contextlib.closing(serving):
        number = serving._listening.getsockname()[1]
        said = raw(number, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert said.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\x1b" not in said
    if status == 421:
        assert said.endswith(b"is not a name of this server\n")


def test_elsewhere_than_on_loopback_any_host_may_be_asked_for(board: Board) -> None:
    serving = WebServer(listen(Address("0.0.0.0", 0)), board, lambda _: None)
    serving.start()
    with contextlib.closing(serving):
        said = raw(serving._listening.getsockname()[1], b"GET /healthz HTTP/1.1\r\nHost: node-7.example\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")


def _answers(port: int) -> bool:
    try:
        return bool(get(port, "/healthz")[0] == 200)
    except (OSError, ValueError):
        return False


def test_a_page_is_made_at_most_once_a_second(port: int, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    before = get(port, "/status.json")[2]
    board.failed("/a", "broken")
    assert get(port, "/status.json")[2] == before


def test_nothing_in_the_page_could_run_or_load_anything(port: int) -> None:
    _, headers, body = get(port, "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    for word in (b"<script", b"<link", b"<img", b"src=", b"url(", b"@import"):
        assert word not in body


def test_health_is_200_while_all_is_well_and_503_with_the_reason_else(port: int, board: Board) -> None:
    board.beat()
    board.failed("/a", "state: Input/output error")
    status, headers, body = get(port, "/healthz")
    said = json.loads(body)
    assert (status, headers["Content-Type"], said["status"]) == (503, "application/json", "problems")
    assert said["problems"] == ["/a: state: Input/output error"]
    assert said["directories"] == [{"directory": "/a", "state": "problem"}]


def test_a_daemon_whose_ticks_stay_away_is_not_healthy(
    port: int, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_module, "_LATE_SECONDS", -1.0)
    status, _, body = get(port, "/healthz")
    assert status == 503
    assert "the daemon: no progress for" in json.loads(body)["problems"][0]


def test_a_directory_whose_step_hangs_is_not_up_while_the_others_are(
    port: int, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.update("/a", is_open=True)
    board.update("/b", is_open=True)
    with board.at_work("/a"):
        monkeypatch.setattr(board_module, "_LATE_SECONDS", -1.0)
        said = json.loads(get(port, "/healthz")[2])
        assert said["directories"] == [{"directory": "/a", "state": "problem"}, {"directory": "/b", "state": "kept"}]
        assert "/a: no progress for" in said["problems"][0]
        metrics = get(port, "/metrics")[2]
        assert b'lockcache_directory_up{directory="/a"} 0.0\n' in metrics
        assert b'lockcache_directory_up{directory="/b"} 1.0\n' in metrics


def test_clients_that_hang_keep_no_sweep_and_no_end_of_the_daemon(cache_path: Path) -> None:
    with Watched("--max-size", "1M", cache_path) as daemon, contextlib.ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port), HANG_SECONDS))
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET / HTTP/1.1\r\n")
        fill(cache_path, 200, 10_000)
        until(lambda: bytes_on_disk(cache_path) <= 950_000)
        assert daemon.end(signal.SIGTERM) == 0
        assert daemon.errors() == ""


def test_it_listens_on_loopback_alone_unless_told(cache_path: Path) -> None:
    with Watched("--max-size", "1M", cache_path) as daemon:
        assert _listening_addresses(daemon.process.pid) == {"127.0.0.1"}


def test_it_serves_ipv6(cache_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with Watched("--max-size", "1M", cache_path, host="[::1]") as daemon:
        assert get(daemon.port, "/healthz", host="::1")[0] == 200


def _listening_addresses(pid: int) -> set[str]:
    import psutil

    return {each.laddr.ip for each in psutil.Process(pid).net_connections("tcp") if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    "text, address",
    [
        ("9477", Address("127.0.0.1", 9477)),
        (":9477", Address("127.0.0.1", 9477)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("localhost:9477", Address("localhost", 9477)),
        ("[::1]:9477", Address("::1", 9477)),
        ("[::]:0", Address("::", 0)),
        (" node-7.example:65535 ", Address("node-7.example", 65535)),
    ],
)
def test_addresses_as_people_write_them(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "x" * 70])
def test_an_address_that_cannot_be_had_is_one_line(host: str) -> None:
    with pytest.raises(AddressError, match=f"cannot serve metrics on {host}:9477: ."):
        listen(Address(host, 9477))


def test_a_reload_moves_the_address_and_keeps_the_old_one_if_the_new_one_is_taken(
    cache_path: Path, tmp_path: Path
) -> None:
    config = tmp_path / "lockcache.toml"
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
        first.close()
        config.write_text(f'max_size = "1M"\nmetrics = "127.0.0.1:{ports[0]}"\n')
        with RunningDaemon("--config", config, cache_path) as daemon:
            assert daemon.wait_for("listen")["address"] == f"127.0.0.1:{ports[0]}"
            config.write_text(f'max_size = "1M"\nmetrics = "127.0.0.1:{ports[1]}"\n')
            daemon.process.send_signal(signal.SIGHUP)
            assert "Address already in use" in daemon.wait_for("error")["error"]["message"]
            assert get(ports[0], "/healthz")[0] == 200
            second.close()
            daemon.process.send_signal(signal.SIGHUP)
            assert daemon.wait_for("listen")["address"] == f"127.0.0.1:{ports[1]}"
            assert get(ports[1], "/healthz")[0] == 200
            until(lambda: not _answers(ports[0]))
            config.write_text('max_size = "1M"\n')
            daemon.process.send_signal(signal.SIGHUP)
            until(lambda: not _answers(ports[1]))
            assert daemon.end(signal.SIGTERM) == 0
