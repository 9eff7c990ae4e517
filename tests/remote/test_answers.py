# SPDX-License-Identifier: Apache-2.0
"""Kinds of answers, asked of every transport: absent, refused, misused, broken and silent."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from lockcache.remote import Answer, RemoteError, RemoteStore, call_within, open_transport, parse_url
from lockcache.remote.servers.answers import in_one_line, meaning_of
from lockcache.remote.wait_limits import Breaker
from tests.remote.answering import Said, http_that, redis_that
from tests.remote.servers import free_port

_NAME = "a" * 64
_REDIS = {
    Answer.ABSENT: {"": b"$0\r\n\r\n"},
    Answer.REFUSED: {
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.": b"",
        "NOREPLICAS Not enough good replicas to write.": b"",
        "OOM command not allowed when used memory > 'maxmemory'.": b"",
        "LOADING Redis is loading the dataset in memory": b"",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": b"",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": b"",
        "READONLY You can't write against a read only replica.": b"",
        "NOPERM this user has no permissions to run the 'getrange' command": b"",
        "CLUSTERDOWN The cluster is down": b"",
        "WRONGTYPE Operation against a key holding the wrong kind of value": b"",
        "ERR unknown command 'GETRANGE', with args beginning with: ": b"",
        "ERR max number of clients reached": b"",
    },
    Answer.MISUSED: {
        "NOAUTH Authentication required.": b"",
        "WRONGPASS invalid username-password pair or user is disabled.": b"",
        "ERR DB index is out of range": b"",  # of which the client takes the first word
        "DENIED Redis is running in protected mode": b"",
    },
    Answer.BROKEN: {"": b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed": None},
}
_HTTP = {
    Answer.ABSENT: [404, 410],
    Answer.REFUSED: [302, 400, 403, 405, 413, 429, 500, 502, 503, 507],
    Answer.MISUSED: [401, 407],
}
_S3 = {
    Answer.ABSENT: [Said(404, "NoSuchKey", "The specified key does not exist."), Said(403, "AccessDenied", "Denied")],
    Answer.REFUSED: [
        Said(429, "TooManyRequests", "Slow down"),
        Said(500, "InternalError", "We encountered an internal error"),
        Said(503, "SlowDown", "Reduce your request rate"),
        Said(507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
    ],
    Answer.MISUSED: [
        Said(400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'"),
        Said(401, "", ""),
        Said(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large"),
        Said(403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
        Said(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records"),
        Said(404, "NoSuchBucket", "The specified bucket does not exist"),
    ],
}


def _meaning(url: str) -> tuple[Answer | None, str]:
    """Returns what a read at ``url`` meant, and its words; ``None`` for a value."""
    transport = open_transport(parse_url(url), 5.0)
    try:
        value, _ = call_within(10.0, lambda: transport.get(_NAME))
    except RemoteError as error:
        return error.answer, str(error)
    finally:
        transport.abort()
    return (Answer.ABSENT if value is None else None), ""


@contextlib.contextmanager
def _refusing(kind: str) -> Iterator[str]:
    """A server that answers every call, and refuses it."""
    if kind == "redis":
        with redis_that(lambda command: b"-MISCONF disk full\r\n") as port:
            yield f"redis://127.0.0.1:{port}"
    else:
        with http_that(lambda method: Said(503)) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("meant, said", [(meant, said) for meant, all_ in _REDIS.items() for said in all_])
def test_redis(meant: Answer, said: str) -> None:
    raw = _REDIS[meant][said]
    with redis_that(lambda command: raw if raw or raw is None else f"-{said}\r\n".encode()) as port:
        answer, words = _meaning(f"redis://127.0.0.1:{port}")
    assert answer is meant
    if answer in (Answer.REFUSED, Answer.MISUSED):
        assert words.startswith("it answers: ")
        assert said.partition(" ")[2].partition(",")[0].strip(" .")[:40] in words, "the server's words"
        assert "\n" not in words


@pytest.mark.parametrize("meant, status", [(meant, status) for meant, all_ in _HTTP.items() for status in all_])
def test_http(meant: Answer, status: int) -> None:
    with http_that(lambda method: Said(status)) as port:
        answer, words = _meaning(f"http://127.0.0.1:{port}")
    assert answer is meant
    assert not words or f"GET with {status} " in words


@pytest.mark.parametrize("scheme", ["redis", "http"])
def test_what_does_not_answer(scheme: str) -> None:
    assert _meaning(f"{scheme}://127.0.0.1:{free_port()}")[0] is Answer.BROKEN
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = open_transport(parse_url(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"), 5.0)
        with pytest.raises(RemoteError) as caught:
            call_within(0.2, lambda: transport.get(_NAME))
        assert caught.value.answer is Answer.SILENT
        transport.abort()
    with http_that(lambda method: None) as port:
        assert _meaning(f"http://127.0.0.1:{port}")[0] is Answer.BROKEN


def test_object_stores() -> None:
    """In a process of its own: obstore cannot be in one that was forked from one that used it."""
    said: list[Said | None] = [None]
    with http_that(lambda method: said[0]) as port:
        program = f"""
import sys
from lockcache.remote import open_transport, parse_url
from tests.remote.test_answers import _meaning
for line in sys.stdin:
    url = "s3://kern/team?endpoint=http://127.0.0.1:%s&region=us-east-1&access_key_id=k&secret_access_key=s"
    answer, words = _meaning(url % (line.strip() if line.strip() != "same" else "{port}"))
    print(answer.name, words, sep="|", flush=True)
"""
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        asked, answered = child.stdin, child.stdout
        assert asked is not None
        assert answered is not None

        def ask(port: str = "same") -> tuple[str, str]:
            asked.write(f"{port}\n")
            asked.flush()
            name, _, words = answered.readline().rstrip("\n").partition("|")
            return name, words

        try:
            for meant, answers in _S3.items():
                for answer in answers:
                    said[0] = answer
                    name, words = ask()
                    assert name == meant.name, answer
                    if meant is not Answer.ABSENT:
                        assert f"GET with {answer.status}" in words
                        assert answer.code in words
                        assert answer.words[:60] in words
                        assert "http" not in words, "the URL takes the place of the words"
            said[0] = None
            assert ask()[0] == "BROKEN"
            assert ask(str(free_port())) == ("BROKEN", "Connection refused")
        finally:
            asked.close()
            answered.close()
            child.wait()


@pytest.mark.parametrize("kind", ["redis", "http"])
def test_a_server_that_refuses_everything_is_asked_again_and_again(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with _refusing(kind) as url:
        store = RemoteStore(parse_url(url))
        for number in range(20):
            assert store.load(f"{number:064}") is None
            assert not store.put(f"{number:064}", b"value")
        assert store.counts.errors == 40, "each call was made"
        assert store.counts.refused_puts == 20
        assert not store.link.is_given_up()
        store.close()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2, "one for what is read and one for what is stored"


def test_an_answer_closes_a_breaker() -> None:
    with _refusing("redis") as url:
        breaker = Breaker()
        store = RemoteStore(parse_url(url), breaker=breaker)
        breaker.open()
        assert not store.link._probe()
        assert not breaker.is_open()
        store.close()


def test_reads_that_fail_beside_writes_that_work_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the connection breaks at each read, and a write takes back nothing of that."""
    with http_that(lambda method: None if method == "GET" else Said(201)) as port:
        store = RemoteStore(parse_url(f"http://127.0.0.1:{port}"))
        assert store.load(_NAME) is None
        assert store.put(_NAME, b"value")
        store.flush()
        store.close()
    assert "this program went on without it" in caplog.text


def test_a_put_is_never_absent() -> None:
    """A path that is not there takes nothing: such a put was counted as stored."""
    assert meaning_of("PUT", 404) is Answer.REFUSED
    with http_that(lambda method: Said(404)) as port:
        store = RemoteStore(parse_url(f"http://127.0.0.1:{port}"))
        assert not store.put(_NAME, b"value")
        assert (store.counts.puts, store.counts.refused_puts) == (0, 1)
        assert store.link.tell(lambda transport: transport.remove(_NAME)), "what is not there is removed"
        store.close()


def test_words_of_a_server_are_one_short_line_without_a_password() -> None:
    line = in_one_line("Code", "first\nsecond \x1b[31m http://user:secret@host/path " + "x" * 1000)
    assert line.startswith("Code: first second ?[31m http://host/path xxx")
    assert len(line) == 240
    assert "secret" not in line


def test_a_server_without_auth_has_the_password_in_no_message() -> None:
    words = "-ERR unknown command 'AUTH', with args beginning with: 'alice' 'hunter3secret' \r\n"
    with redis_that(lambda command: words.encode()) as port:
        answer, said = _meaning(f"redis://alice:hunter3secret@127.0.0.1:{port}")
    assert answer is Answer.REFUSED
    assert said.endswith("unknown command 'AUTH'")


def test_an_object_that_is_longer_than_its_headers_state_is_not_received_to_its_end() -> None:
    sent = 0

    def answer(client: socket.socket) -> None:
        nonlocal sent
        head = "HTTP/1.1 200 OK\r\nETag: e\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
        client.sendall(f"{head}Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        while sent < 1000:
            client.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
            sent += 1

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client, contextlib.suppress(OSError):
                client.recv(65_536)
                answer(client)

        thread = threading.Thread(target=serve)
        thread.start()
        where = f"endpoint=http://127.0.0.1:{listening.getsockname()[1]}&region=x&access_key_id=a&secret_access_key=b"
        _, said = _meaning(f"s3://bucket/p?{where}")
        thread.join()
    assert "longer than" in said
    assert sent < 200
