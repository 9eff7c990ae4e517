# SPDX-License-Identifier: Apache-2.0
"""Settings of a URL that can only be a mistake, and proxies that the environment names."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest
import redis
from redis.connection import URL_QUERY_ARGUMENT_PARSERS

from lockcache import RemoteProgramCache
from lockcache.remote import RemoteError
from lockcache.remote.servers import urls
from lockcache.remote.servers.proxies import Proxy, proxy_for
from tests.cli.command import run
from tests.remote.answering import Said, http_that

_MISTAKES = {
    "redis://host?sockettimeout=3": "did you mean socket_timeout",
    "redis://host?socket_timeout=long": "must be a number",
    "redis://host?db=one": "must be a number",
    "redis://host/abc": "number of a database",
    "redis://host?redonly=1": "did you mean read_only",
    "redis://host?read_only=maybe": "must be 1 or 0",
    "http://host/path?region=here": "no setting 'region'",
    "s3://bucket?endpoint=127.0.0.1:9000": "must begin with http",
    "s3://bucket?AWS_ENDPOINT_URL=host": "must begin with http",
}


@pytest.mark.parametrize("url", _MISTAKES)
def test_a_setting_that_can_only_be_a_mistake_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=_MISTAKES[url]):
        RemoteProgramCache(url)
    ended = run("doctor", "--remote", url)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert _MISTAKES[url].partition("'")[0] in ended.stderr


def test_a_setting_of_an_object_store_that_it_does_not_have_is_refused() -> None:
    """By its client, which is loaded for that."""
    for words in (["doctor", "--remote"], ["run", "--remote"]):
        command = [sys.executable, "-m", "lockcache", *words, "s3://bucket?regin=x"]
        command += ["--", "true"] if words[0] == "run" else []
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
        assert "regin" in ended.stderr


def test_the_settings_of_redis_are_those_that_its_client_has() -> None:
    kinds = (redis.Connection, redis.SSLConnection, redis.connection.AbstractConnection)
    known = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    assert set(urls._REDIS_SETTINGS) <= known | set(URL_QUERY_ARGUMENT_PARSERS)


_PROXY = Proxy("http://proxy:3128", "")


@pytest.mark.parametrize(
    "scheme, host, variables, expected",
    [
        ("http", "cache.corp", {"http_proxy": "http://proxy:3128"}, _PROXY),
        ("http", "cache.corp", {"http_proxy": "proxy:3128"}, _PROXY),
        ("http", "cache.corp", {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("https", "cache.corp", {"HTTPS_PROXY": "http://proxy:3128"}, _PROXY),
        ("https", "cache.corp", {"https_proxy": "", "HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https", "cache.corp", {"http_proxy": "http://proxy:3128"}, None),
        ("http", "cache.corp", {"ALL_PROXY": "http://proxy:3128"}, _PROXY),
        (
            "http",
            "cache.corp",
            {"http_proxy": "http://us%40er:pa%3Ass@proxy:3128"},
            _PROXY._replace(user="us@er:pa:ss"),
        ),
        *(
            ("http", "cache.corp", {"http_proxy": "http://proxy:3128", "no_proxy": no}, None)
            for no in ("*", "corp", ".corp", "other, CACHE.corp", "cache.corp other")
        ),
        ("http", "cache.corp", {"http_proxy": "http://proxy:3128", "no_proxy": "orp,ache.corp"}, _PROXY),
        ("http", "cache.corp", {"http_proxy": "http://proxy:3128", "NO_PROXY": "corp"}, None),
        ("http", "10.1.2.3", {"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.0/8"}, None),
        ("http", "::1", {"http_proxy": "http://proxy:3128", "no_proxy": "[::1]"}, None),
    ],
)
def test_the_environment_names_a_proxy_as_for_curl(
    scheme: str, host: str, variables: dict[str, str], expected: Proxy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(scheme, host) == expected


def test_a_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    for value in ("socks5://user:secret@host", "http://user:secret@host:port", "http://"):
        monkeypatch.setenv("http_proxy", value)
        with pytest.raises(RemoteError, match="http_proxy") as caught:
            proxy_for("http", "cache.corp")
        assert "secret" not in str(caught.value)


def test_a_server_is_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(method: str) -> Said:
        asked.append(method)
        return Said(404 if method == "GET" else 201)

    with http_that(answer) as port:
        monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        with RemoteProgramCache("http://cache.corp.invalid/kernels") as cache:
            assert cache.get("k") is None
            cache["k"] = b"code"
    assert asked == ["GET", "PUT"]
