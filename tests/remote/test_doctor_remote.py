# SPDX-License-Identifier: Apache-2.0
"""``lockcache doctor --remote URL`` on real servers, and on ones that are at fault."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

from tests.cli.command import run
from tests.remote.servers import FaultProxy, Nginx, Valkey, free_port


def _verdicts(url: str, exit_code: int) -> dict[str, str]:
    ended = run("doctor", "--json", "--remote", url)
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    return {check["check"]: check["verdict"] for check in json.loads(ended.stdout)["checks"]}


def test_a_server_that_is_well(server: Valkey) -> None:
    found = _verdicts(server.url, 0)
    assert found == {"answers": "good", "stores": "good", "leases": "good", "signatures": "note"}
    assert server.client.dbsize() == 0, "nothing is left there"
    assert "an entry was stored, read, replaced, read and removed" in run("doctor", "--remote", server.url).stdout


def test_http_has_no_leases(tmp_path: Path) -> None:
    nginx = Nginx(tmp_path)
    try:
        assert _verdicts(nginx.url, 0) == {
            "answers": "good",
            "stores": "good",
            "leases": "note",
            "signatures": "note",
        }
    finally:
        nginx.kill()


def test_nobody_listens_or_answers(server: Valkey, proxy_to: Callable[..., FaultProxy]) -> None:
    assert _verdicts(f"redis://127.0.0.1:{free_port()}", 2) == {"answers": "unusable"}
    assert _verdicts(proxy_to(server.port, "garbage").url, 2) == {"answers": "unusable"}


def test_a_server_that_is_slow(server: Valkey, proxy_to: Callable[..., FaultProxy]) -> None:
    assert _verdicts(proxy_to(server.port, "slow").url, 1)["answers"] == "degraded"


def test_a_server_that_is_full(server: Valkey) -> None:
    server.client.config_set("maxmemory", 1)
    try:
        found = _verdicts(server.url, 1)
    finally:
        server.client.config_set("maxmemory", 0)
    assert (found["answers"], found["stores"]) == ("good", "degraded"), "what it has is read"


def test_a_server_that_may_only_be_read_is_as_good_as_it_is_asked_to_be(server: Valkey) -> None:
    server.client.config_set("min-replicas-to-write", 1)  # refuses writes, as one whose disk is full
    try:
        assert _verdicts(server.url, 1)["stores"] == "degraded"
        assert _verdicts(f"{server.url}?read_only=1", 0)["stores"] == "note"
    finally:
        server.client.config_set("min-replicas-to-write", 0)


class _Validating(BaseHTTPRequestHandler):
    """Stands for bazel-remote with its validation of ``/ac/`` on, which cannot be had here: it refuses to store."""

    def do_GET(self) -> None:
        self.send_error(404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(400)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Unreadable(_Validating):
    """Stores what it is given, and fails to show it."""

    stored: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.send_error(500 if self.path in self.stored else 404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.stored.add(self.path)
        self.send_error(201)

    def do_DELETE(self) -> None:
        self.stored.discard(self.path)
        self.send_error(204)


def test_nothing_is_left_on_a_server_that_fails_halfway() -> None:
    with HTTPServer(("127.0.0.1", 0), _Unreadable) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ended = run("doctor", "--json", "--remote", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert ended.returncode == 2
    assert "500 Internal Server Error" in ended.stdout
    assert not _Unreadable.stored


def test_the_validation_of_a_build_cache_is_found_out() -> None:
    with HTTPServer(("127.0.0.1", 0), _Validating) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ended = run("doctor", "--json", "--remote", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert ended.returncode == 1, "it lives, and others may have stored what is read there"
    assert "--disable_http_ac_validation" in ended.stdout


def test_what_is_not_a_server() -> None:
    ended = run("doctor", "--remote", "ftp://user:secret@host")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "is not a URL that begins with" in ended.stderr
    assert "secret" not in ended.stderr
    ended = run("doctor", "--remote", "redis://host", "--pair", "/tmp")
    assert ended.returncode == 2
