# SPDX-License-Identifier: Apache-2.0
"""``rediss://`` and ``https://``: a server whose certificate is of an authority of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tests.matrix_sampling import all_but
from tests.remote.servers import Nginx, Valkey

_USE = """
import sys
from lockcache import RemoteProgramCache
from lockcache.remote import wait_limits
wait_limits.LIFE_SECONDS = wait_limits._LONGEST_CALL_SECONDS = 60.0  # late answers of a busy machine are not tried
with RemoteProgramCache(sys.argv[1]) as cache:
    for number in range(20):
        assert cache.get_or_compute(f"k{number}", lambda: b"code") == b"code"
with RemoteProgramCache(sys.argv[1]) as cache:
    print(sum(cache.get(f"k{number}") == b"code" for number in range(20)))
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority ``ca.pem``, a server's ``server.pem`` and ``server.key``, and ``other.pem``."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        about = ("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")
        openssl("req", "-x509", *curve, "-days", "2", *about, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl("req", *curve, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", *signed_by, "-out", "server.pem")
    return folder


@pytest.fixture(scope="module", params=[Valkey, Nginx], ids=["rediss", "https"])
def server(
    request: pytest.FixtureRequest, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    pair = certificates / "server.pem", certificates / "server.key"
    running = request.param(tmp_path_factory.mktemp("server"), certificate=pair)
    yield running
    running.kill()


def _use(url: str) -> tuple[int, list[str]]:
    ended = subprocess.run([sys.executable, "-c", _USE, url], capture_output=True, text=True, check=True)
    return int(ended.stdout), ended.stderr.splitlines()


def _examined(url: str) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(run("doctor", "--json", "--remote", url).stdout)["checks"]
    return checks


@pytest.mark.slow
def test_a_server_whose_authority_is_named_is_used(server: Any, certificates: Path) -> None:
    url = f"{server.url}?ssl_ca_certs={certificates}/ca.pem"
    assert _use(url) == (20, [])
    found = {check["check"]: check["verdict"] for check in _examined(url)}
    assert (found["answers"], found["stores"]) == ("good", "good")


@pytest.mark.slow
@pytest.mark.parametrize("authority", all_but(["other.pem"], ["", "other.pem"]))
def test_a_server_of_an_unknown_authority_is_refused_in_one_line(
    server: Any, certificates: Path, authority: str
) -> None:
    url = f"{server.url}?ssl_ca_certs={certificates}/{authority}" if authority else server.url
    hits, said = _use(url)
    assert hits == 0
    # Each of the two caches says it once, if its process still waits for it; nothing reaches the program.
    assert len(said) in (1, 2), said
    assert all("CERTIFICATE_VERIFY_FAILED" in line and "programs go on without it" in line for line in said), said
    [check] = _examined(url)
    assert check["verdict"] == "unusable"
    assert "CERTIFICATE_VERIFY_FAILED" in json.dumps(check)
    assert "ssl_ca_certs=" in json.dumps(check)


def test_a_setting_that_no_http_server_has_is_refused_by_the_doctor() -> None:
    ended = run("doctor", "--remote", "http://127.0.0.1:1/kernels?region=here")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "there is no setting 'region'" in ended.stderr
