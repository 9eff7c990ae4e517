# SPDX-License-Identifier: Apache-2.0
"""A client of the daemon's HTTP server, and a daemon that serves HTTP."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon


def get(port: int, path: str, *, host: str = "127.0.0.1", method: str = "GET", accept: str = "*/*") -> Any:
    """Returns status, headers and body of an answer."""
    connection = http.client.HTTPConnection(host, port, timeout=HANG_SECONDS)
    try:
        connection.request(method, path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Watched(RunningDaemon):
    """A running daemon with ``--metrics`` on a port that it chooses."""

    def __init__(self, *arguments: object, starts: int = 1, host: str = "127.0.0.1") -> None:
        super().__init__("--metrics", f"{host}:0", *arguments, starts=starts)
        self.port = 0

    def __enter__(self) -> Watched:
        super().__enter__()
        self.port = int(self.wait_for("listen")["address"].rpartition(":")[2])
        return self

    def text(self, path: str) -> str:
        status, _, body = get(self.port, path)
        assert status == 200, body
        return str(body.decode())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text("/status.json"))
        return found

    def directory(self, root: Path) -> dict[str, Any]:
        (found,) = (each for each in self.status()["directories"] if each["root"] == str(root))
        return dict(found)

    def metric(self, name: str, **labels: str) -> float | None:
        """Returns a sample of ``/metrics``; ``None`` if there is none."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in self.text("/metrics").splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == wanted:
                return float(value)
        return None
