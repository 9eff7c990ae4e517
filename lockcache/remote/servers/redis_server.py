# SPDX-License-Identifier: Apache-2.0
"""Valkey and Redis, one server or a cluster, by redis-py: a key for each entry, with an expiry, and one for each lease.

Decides the keys (a prefix and the entry's name) and the commands. Source of the lease: ``SET key token NX PX ms``, and
a script that compares the token before it extends or removes, as Redis documents it for a single server. The server
evicts by its own ``maxmemory-policy``; a full server that may not evict refuses, which is not a fault.

A server that answers MOVED belongs to a cluster, and is used as such from then on.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lockcache.remote.servers.answers import RemoteError, in_one_line, meaning_of
from lockcache.remote.servers.transport import (
    LARGEST_VALUE_BYTES,
    LeaseAnswer,
    ValueProgress,
    name_in,
    reason_of,
    received_from,
)
from lockcache.remote.servers.urls import RemoteUrl

__all__ = ["RedisTransport", "connect"]

_T = TypeVar("_T")

_RENEW: Final = (
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
)
_FAILED: Final = b"failed"  # no token
_FAIL: Final = (
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('set',KEYS[1],ARGV[3],'px',ARGV[2]) else return 0 end"
)
_RELEASE: Final = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

# By the name that the installed version of the client knows.
_HAS_DRIVER_INFO: Final = "driver_info" in inspect.signature(redis.connection.AbstractConnection.__init__).parameters
_ANONYMOUS: Final = {"driver_info": None} if _HAS_DRIVER_INFO else {"lib_name": None, "lib_version": None}

# No more is received of what stands there in place of a token.
_LONGEST_TOKEN: Final = 64
_DAY_SECONDS: Final = 86_400
# Keys in one round trip. At 16 KiB each they are 2 MiB, which a server answers before it serves its other clients.
_AT_ONCE: Final = 128
# Keys that a server looks at for one answer of a list: a millisecond.
_LISTED_AT_ONCE: Final = 1000
# The bytes of an answer to one request, or to one round trip of several, after which a process closes the connection.
_LONGEST_ANSWER_BYTES: Final = 4 * LARGEST_VALUE_BYTES


def connect(url: RemoteUrl, timeout_seconds: float) -> RedisTransport:
    """Returns a transport for one server, which becomes one for a cluster when the server says that it is of one."""
    return RedisTransport(url, timeout_seconds)


class RedisTransport:
    """See :class:`.transport.Transport`."""

    has_leases = True
    denies_missing = False

    def __init__(self, url: RemoteUrl, timeout_seconds: float) -> None:
        self._url = url
        # No greeting, no name of the library: each would be a round trip of each connection.
        self._settings: dict[str, Any] = {
            "socket_timeout": timeout_seconds,
            "protocol": 2,
            **_ANONYMOUS,
        }
        if url.scheme != "unix":
            self._settings["socket_connect_timeout"] = timeout_seconds
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._connecting = threading.Lock()
        kind = _BOUNDED[url.scheme]
        self._arrived_bytes = 0
        parts = {"note": staticmethod(self._note), "note_arrived": staticmethod(self._note_arrived)}
        self._settings["connection_class"] = type(kind.__name__, (kind,), parts)
        self._client: Any = redis.Redis.from_url(url.url, retry=Retry(NoBackoff(), 0), **self._settings)
        self._is_cluster = False
        self._may_renew = True

    def get(self, name: str) -> bytes | None:
        return self._value(self._call(partial(self._read, [name]))[0])

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        wanted = list(names)
        found = {}
        for first in range(0, len(wanted), _AT_ONCE):
            part = wanted[first : first + _AT_ONCE]
            for name, answer in zip(part, self._call(partial(self._read, part)), strict=True):
                value = self._value(answer)
                if value is not None:
                    found[name] = value
        return found

    def put(self, name: str, value: bytes) -> None:
        self._call(lambda client: client.set(self._key(name), value, ex=self._url.ttl_seconds))

    def remove(self, name: str) -> None:
        self._call(lambda client: client.delete(self._key(name)))

    def names(self) -> Iterator[str]:
        if not self._is_cluster and self._call(lambda client: client.info("cluster")).get("cluster_enabled"):
            self._use_cluster()  # or only one node's would be listed
        pattern = re.sub(r"([\[\]*?\\])", r"\\\1", self._url.prefix) + "*"
        with _in_words():
            for key in self._client.scan_iter(match=pattern, count=_LISTED_AT_ONCE):
                if (name := name_in(key, self._url.prefix)) is not None:
                    yield name

    def try_lease(self, name: str, token: str, seconds: float, *, has_waited: bool = False) -> LeaseAnswer:
        lease = self._lease(name)
        # A waiter looks first, and mostly finds it held: one request, as an attempt to take it.
        holder = self._call(lambda client: client.getrange(lease, 0, _LONGEST_TOKEN)) if has_waited else b""
        if holder:
            return LeaseAnswer.FAILED if holder == _FAILED else LeaseAnswer.HELD
        is_taken = self._call(lambda client: client.set(lease, token, nx=True, px=_ms(seconds)))
        return LeaseAnswer.TAKEN if is_taken else LeaseAnswer.HELD

    def renew(self, name: str, token: str, seconds: float) -> bool:
        return bool(self._call(lambda client: client.eval(_RENEW, 1, self._lease(name), token, _ms(seconds))))

    def release(self, name: str, token: str, failed_seconds: float = 0) -> None:
        lease = self._lease(name)
        if failed_seconds:
            self._call(lambda client: client.eval(_FAIL, 1, lease, token, _ms(failed_seconds), _FAILED))
        else:
            self._call(lambda client: client.eval(_RELEASE, 1, lease, token))

    def probe(self) -> None:
        self._call(lambda client: client.exists(self._key("probe")))

    def abort(self) -> None:
        with contextlib.suppress(Exception):  # of connections that other threads are closing
            if self._is_cluster:
                self._client.disconnect_connection_pools()
            else:
                self._client.connection_pool.disconnect(inuse_connections=True)

    def received_bytes(self) -> int:
        with self._connecting:
            sockets = list(self._sockets)
        return received_from(sockets)

    def arrived_bytes(self) -> int:
        return self._arrived_bytes

    def _note_arrived(self, size_bytes: int) -> None:
        self._arrived_bytes += size_bytes  # of two threads at once, one may be missed

    def _note(self, connected: socket.socket) -> None:
        with self._connecting:
            self._sockets.add(connected)

    def _key(self, name: str) -> str:
        return f"{self._url.prefix}{name}"

    def _lease(self, name: str) -> str:
        return f"{self._url.prefix}lease:{name}"

    def _read(self, names: list[str], client: Any) -> list[Any]:
        """Returns the answers for these names, and renews for how long those that were found are kept."""
        keys = [self._key(name) for name in names]
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                # GETRANGE, not GET: so that no more is received of a value than is accepted.
                pipeline.getrange(key, 0, LARGEST_VALUE_BYTES)
            for key in keys if self._url.may_send and self._may_renew else ():
                pipeline.ttl(key)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        values, left = answers[: len(keys)], answers[len(keys) :]
        for answer in values:  # not those of the times: a server may allow reads of values alone
            if isinstance(answer, Exception):
                raise answer
        if old := [key for key, seconds in zip(keys, left, strict=False) if self._is_old(seconds)]:
            self._renew(old, client)
        return values

    def _is_old(self, left_seconds: object) -> bool:
        """Returns whether a key that is kept for so long was stored or renewed a day ago; -1: for ever, -2: not there.

        Not at each read: that would be a write, for replicas and the server's log as well.
        """
        kept_seconds = self._url.ttl_seconds
        return isinstance(left_seconds, int) and 0 <= left_seconds <= kept_seconds - min(_DAY_SECONDS, kept_seconds / 2)

    def _renew(self, keys: list[str], client: Any) -> None:
        """Keep keys for as long as new ones. The value is there: a server that refuses this is not at fault.

        It is asked for that, and for the times, no more over this connection.
        """
        with contextlib.suppress(redis.exceptions.RedisError), client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.expire(key, self._url.ttl_seconds)
            answers = pipeline.execute(raise_on_error=False)
            if any(isinstance(answer, redis.exceptions.ResponseError) for answer in answers):
                self._may_renew = False

    def _value(self, answer: object) -> bytes | None:
        if not isinstance(answer, bytes):
            raise RemoteError(f"it answered with {type(answer).__name__} in place of bytes")
        return answer or None

    def _call(self, ask: Callable[[Any], _T]) -> _T:
        with _in_words():
            try:
                return ask(self._client)
            except redis.exceptions.MovedError:
                if self._is_cluster:
                    raise
            self._use_cluster()
            return ask(self._client)

    def _use_cluster(self) -> None:
        # Without retries: a node that is lost is lost for this call, and the next call asks which node has its keys
        # now. For rediss:// the client would use a class of its own; the given class speaks TLS as well.
        self._client = redis.RedisCluster.from_url(
            self._url.url.replace("rediss:", "redis:", 1),
            retry=Retry(NoBackoff(), 1),
            require_full_coverage=False,
            **self._settings,
        )
        self._is_cluster = True


class _BoundedSocket:
    """A connected socket which is given up in an answer of more than :data:`_LONGEST_ANSWER_BYTES`.

    The client believes a server that states a length, and receives until the memory is full.
    """

    def __init__(self, connected: Any, note_arrived: Callable[[int], object]) -> None:
        self._connected = connected
        self._note_arrived = note_arrived
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._left_bytes = _LONGEST_ANSWER_BYTES
        self._progress = ValueProgress(self._note_arrived, begins_anywhere=True)

    def sendall(self, data: Any) -> None:
        self._begin_answer()
        self._connected.sendall(data)

    def recv(self, size: int, *flags: int) -> bytes:
        received: bytes = self._connected.recv(size, *flags)
        self._count(received)
        return received

    def recv_into(self, buffer: Any, *arguments: Any) -> int:
        size: int = self._connected.recv_into(buffer, *arguments)
        self._count(memoryview(buffer)[:size])
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def _count(self, received: bytes | memoryview) -> None:
        self._progress.add(received)
        self._left_bytes -= len(received)
        if self._left_bytes < 0:
            raise RemoteError(f"an answer is longer than {_LONGEST_ANSWER_BYTES} bytes")


class _Bounded:
    """Receives bounded answers, whatever the connection is made of."""

    #: Called with each connected socket.
    note: Callable[[socket.socket], None]
    #: Called with the bytes that came.
    note_arrived: Callable[[int], object]

    def _connect(self) -> _BoundedSocket:
        connected: socket.socket = super()._connect()  # type: ignore[misc]
        self.note(connected)
        return _BoundedSocket(connected, self.note_arrived)


class _Plain(_Bounded, redis.Connection):
    pass


class _Tls(_Bounded, redis.SSLConnection):
    pass


class _Unix(_Bounded, redis.UnixDomainSocketConnection):
    pass


_BOUNDED: Final = {"redis": _Plain, "rediss": _Tls, "unix": _Unix}


#: The codes of answers for which the client has a class, and which it takes from the words. Some of these classes are
#: those of broken connections.
_CODES: Final = (
    (redis.exceptions.AuthenticationError, "WRONGPASS"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
)
_TOO_MANY: Final = "max number of clients reached"
_CODE: Final = re.compile(r"[A-Z][A-Z0-9]+")


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Turn what redis-py raises into a :class:`RemoteError`: its own errors, and what its parsers make of garbage."""
    try:
        yield
    except RemoteError:
        raise
    except redis.exceptions.InvalidResponse as error:  # garbage
        raise RemoteError(in_one_line("it does not speak the protocol", str(error))) from None
    except (redis.exceptions.ResponseError, redis.exceptions.ConnectionError) as error:
        raise _answer(error) from None
    except Exception as error:  # noqa: BLE001 - a parser that meets garbage raises what it likes
        raise RemoteError(in_one_line(reason_of(error))) from None


def _answer(error: Exception) -> RemoteError:
    """Returns an error that the server answered with; or a broken connection, for which the client has one class."""
    # A server without AUTH quotes what it was given: the password.
    words = str(error).partition(", with args beginning")[0]
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "")
    if not code and words == _TOO_MANY:
        code = "ERR"
    if not code and not isinstance(error, redis.exceptions.ResponseError):
        return RemoteError(in_one_line(reason_of(error)))
    if code:
        words = f"{code} {words}"
    first = _CODE.match(words)
    meaning = meaning_of("GET", code=words) if words in _WHOLE else meaning_of("GET", code=first[0] if first else "")
    return RemoteError(in_one_line("it answers", words), meaning)


#: Answers without a code of their own.
_WHOLE: Final = ("DB index is out of range",)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
