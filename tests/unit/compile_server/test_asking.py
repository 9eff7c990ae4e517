# SPDX-License-Identifier: Apache-2.0
"""Whatever a server answers, a caller has what it compiled or nothing."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lockcache.compile_server import Mode, Request, ask, asking, open_place, wire

REQUEST = Request("/lib", "00", (), "k.cu", "cubin", "#include <a.h>\n", ("/work",), "1:2", ())
TAKEN: dict[str, Any] = {"state": "taken", "seconds": 5, "evidence": False}
COMPILED: dict[str, Any] = {"state": "compiled", "release": [13, 5]}

#: Takes a request, and is stopped.
STOPPED = """
import os, signal, time
from lockcache.compile_server import open_place, wire
with open_place() as opened, opened.listen() as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
    wire.receive_head(connection, time.monotonic() + 60)
    wire.send(connection, {"state": "taken", "seconds": 15, "evidence": False, "pid": os.getpid()})
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(
    "taken, head, lowered, is_one",
    [
        (TAKEN, COMPILED, b"[]", True),
        (TAKEN, {"state": "compiled"}, b"[]", False),
        (TAKEN, {"state": "compiled", "release": 5}, b"[]", False),
        (TAKEN, COMPILED, b"[5]", False),
        (TAKEN, COMPILED, b"[[", False),
        ({"state": "taken", "seconds": float("nan")}, COMPILED, b"[]", False),
    ],
)
def test_an_answer_of_any_shape_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: dict[str, Any], head: dict[str, Any], lowered: bytes,
    is_one: bool,
) -> None:  # fmt: skip
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(asking, "_rests_until", 0.0)
    names = () if is_one or lowered != b"[5]" else (b"f<int>",)
    with open_place() as opened, opened.listen() as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            until = time.monotonic() + 5
            with connection, contextlib.suppress(OSError):  # it may leave
                wire.receive_head(connection, until)
                wire.send(connection, taken)
                wire.receive_blobs(connection, wire.receive_head(connection, until), until)
                wire.send(connection, head, b"code", b"\0", lowered)

        server = threading.Thread(target=serve)
        server.start()
        found = ask(REQUEST, b"source", names, Mode.ON, bytes)
        server.join()
    assert found == (asking.Answer(b"code", b"\0", (), "13.5") if is_one else None)


def test_a_server_that_stops_before_it_reads_a_long_source_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(asking, "_rests_until", 0.0)
    monkeypatch.setattr(asking, "STARTED_SECONDS", 60.0)
    caplog.set_level(logging.DEBUG, "lockcache")
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            assert ask(REQUEST, b" " * (4 << 20), (), Mode.ON, bytes) is None
        finally:
            server.kill()
    assert "is stopped" in caplog.text  # and not: no answer in time
