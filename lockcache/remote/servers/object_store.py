# SPDX-License-Identifier: Apache-2.0
"""S3, Google Cloud Storage and Azure, by obstore: an object for each entry, and one for each lease.

Decides the lease where there is no expiry: an object that is created only if it is not there, and rewritten by its
holder with another content each second. An object that was not rewritten for three seconds, by the observer's clock, is
taken over by a put on condition that it is still the same. So the clocks of two hosts are never compared. Stores that
do not honour such conditions are detected by one trial, and have no leases.

obstore's threads do not survive a fork: a child of a process that has used it goes without the server.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore import exceptions
from obstore.store import from_url

from lockcache.remote.servers.answers import AbsentError, Answer, RemoteError, in_one_line, meaning_of
from lockcache.remote.servers.calls import read_in_parallel
from lockcache.remote.servers.transport import (
    LARGEST_VALUE_BYTES,
    LONGEST_SECONDS,
    LeaseAnswer,
    ValueProgress,
    name_in,
)
from lockcache.remote.servers.urls import RemoteUrl

__all__ = ["ObjectTransport", "connect"]

#: Requests at once.
_AT_ONCE: Final = 64
# A lease's state at other holders; of more names, all are forgotten, and watched from now on.
_MOST_WATCHED: Final = 65_536

#: How the lease of a failure begins, which no token does. The time of it follows, in ns since the epoch.
_FAILED: Final = b"failed "
_LONGEST_LEASE: Final = 64
# Received of an object before its length is looked at.
_PIECE_BYTES: Final = 1 << 20

# What obstore says of an answer, whose body follows.
_ANSWERED: Final = re.compile(r"status code: ([1-5][0-9][0-9]) ?([A-Za-z' -]{0,60})")
_CODE: Final = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,80})\s*</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,1000})")
# The system's words, in what follows obstore's own.
_CAUSES: Final = re.compile(r'(?:message|error): "([^"\\]{1,200})"|InvalidCertificate\(\s*([A-Za-z]{1,60})')
# Where it states no status.
_STATUSES: Final = (
    (FileNotFoundError, 404),
    (exceptions.UnauthenticatedError, 401),
    ((PermissionError, exceptions.PermissionDeniedError), 403),
    ((exceptions.AlreadyExistsError, exceptions.PreconditionError), 412),
)
_DENIED: Final = 403

_used_by_pid = 0


class _Leases:
    """The state of a bucket's leases as this process knows it. It outlasts a transport, which is replaced after a
    failed call."""

    def __init__(self) -> None:
        #: For leases that others hold: the state that was first seen, and when.
        self.watched: dict[str, tuple[str, float]] = {}
        #: For leases that this process holds, by token: the state of its own object.
        self.held: dict[str, str] = {}


_leases: Final[dict[str, _Leases]] = {}


def connect(url: RemoteUrl, timeout_seconds: float) -> ObjectTransport:
    """Returns a transport for one bucket. Raises :class:`RemoteError` in a forked child whose parent has used one."""
    global _used_by_pid
    if _used_by_pid not in (0, os.getpid()):
        raise RemoteError("obstore was used before this process was forked, and cannot be in it", Answer.MISUSED)
    _used_by_pid = os.getpid()
    return ObjectTransport(url, timeout_seconds)


class ObjectTransport:
    """See :class:`.transport.Transport`."""

    def __init__(self, url: RemoteUrl, timeout_seconds: float) -> None:
        settings = dict(parse_qsl(urlsplit(url.url).query))
        seconds = f"{timeout_seconds:g}s"
        # For the whole of a request, of which the answer may be long.
        whole_seconds = f"{timeout_seconds + LONGEST_SECONDS:g}s"
        options: Any = {"timeout": whole_seconds, "connect_timeout": seconds}
        if settings.get("endpoint", "").startswith("http://"):
            options["allow_http"] = True
        config: Any = settings
        self._store = from_url(
            url.url.partition("?")[0],
            config=config or None,
            client_options=options,
            retry_config={"max_retries": 0},
        )
        #: Whether it answered that a read is denied, as stores do for what is missing where one may not list.
        self.denies_missing = False
        self._arrived_bytes = 0
        self._prefix = url.prefix.replace(":", "/")
        leases = _leases.setdefault(url.url, _Leases())
        self._watched, self._held = leases.watched, leases.held

    @functools.cached_property
    def has_leases(self) -> bool:
        """Returns whether the store honours conditions of puts, as far as trials show."""
        place = f"{self._prefix}probe/{secrets.token_hex(16)}"
        with _in_words("PUT"):
            state = self._put_if(place, b"1", "create")
            is_honoured = (
                state is not None
                and self._put_if(place, b"2", "create") is None
                and self._put_if(place, b"3", {"e_tag": '"0123456789abcdef0123456789abcdef"'}) is None
                and self._put_if(place, b"4", {"e_tag": state}) is not None
            )
            obstore.delete(self._store, place)
        return is_honoured

    def get(self, name: str) -> bytes | None:
        try:
            found = self._find(self._place(name))
            if found.meta["size"] > LARGEST_VALUE_BYTES:
                raise RemoteError(f"an object of {found.meta['size']} bytes is not an entry")
            return _bounded(found, LARGEST_VALUE_BYTES, self._note_arrived)
        except AbsentError:
            return None

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        return read_in_parallel(names, self.get, _AT_ONCE)

    def put(self, name: str, value: bytes) -> None:
        with _in_words("PUT"):
            obstore.put(self._store, self._place(name), value, use_multipart=False)

    def remove(self, name: str) -> None:
        with contextlib.suppress(AbsentError), _in_words("DELETE"):
            obstore.delete(self._store, self._place(name))

    def names(self) -> Iterator[str]:
        with _in_words():
            # By whole segments of the path, which a prefix need not end with.
            for found in obstore.list(self._store, prefix=self._prefix.rpartition("/")[0] or None):
                for each in found:
                    if (name := name_in(each["path"].encode(), self._prefix)) is not None:
                        yield name

    def try_lease(self, name: str, token: str, seconds: float, *, has_waited: bool = False) -> LeaseAnswer:
        place = self._lease(name)
        with _in_words("PUT"):
            state = self._put_if(place, _content(token), "create")
            if state is None:
                answer, stale = self._look_at(place, seconds)
                if answer is not LeaseAnswer.TAKEN:
                    return answer
                state = self._put_if(place, _content(token), {"e_tag": stale})
        if state is None:
            return LeaseAnswer.HELD
        self._held[token] = state
        return LeaseAnswer.TAKEN

    def renew(self, name: str, token: str, seconds: float) -> bool:
        held = self._held.get(token)
        with _in_words("PUT"):
            state = None if held is None else self._put_if(self._lease(name), _content(token), {"e_tag": held})
        if state is None:
            self._held.pop(token, None)
            return False
        self._held[token] = state
        return True

    def release(self, name: str, token: str, failed_seconds: float = 0) -> None:
        held = self._held.pop(token, None)
        if held is not None and failed_seconds:
            with _in_words("PUT"):
                self._put_if(self._lease(name), b"%b%d" % (_FAILED, time.time_ns()), {"e_tag": held})
            return
        # Stores have no conditional removal. Between the two calls the lease still belongs to this process for seconds.
        with contextlib.suppress(AbsentError), _in_words():
            if held is not None and obstore.head(self._store, self._lease(name))["e_tag"] == held:
                obstore.delete(self._store, self._lease(name))

    def probe(self) -> None:
        self.get("0" * 64)

    def abort(self) -> None:
        """Do nothing: each request has a time-out of its own, for the whole of it."""

    def received_bytes(self) -> int:
        """Returns 0: the client library shows no connection."""
        return 0

    def arrived_bytes(self) -> int:
        return self._arrived_bytes

    def _note_arrived(self, size_bytes: int) -> None:
        self._arrived_bytes += size_bytes  # of two threads at once, one may be missed

    def _look_at(self, place: str, seconds: float) -> tuple[LeaseAnswer, str]:
        """Returns the answer for a lease that is there, and its state: ``TAKEN`` if it may be taken over.

        It may if it was not renewed for so long while this process watched, or if it is that of a failure which by this
        host's clock was not in that time.
        """
        try:
            found = self._find(place)
            state = found.meta["e_tag"] or ""
            content = (
                _bounded(found, _LONGEST_LEASE, self._note_arrived) if found.meta["size"] <= _LONGEST_LEASE else b""
            )
        except AbsentError:  # given back just now
            self._watched.pop(place, None)
            return LeaseAnswer.HELD, ""
        if content.startswith(_FAILED):
            is_recent = 0 <= time.time_ns() - _number(content[len(_FAILED) :]) < seconds * 1e9
            return (LeaseAnswer.FAILED if is_recent else LeaseAnswer.TAKEN), state
        now = time.monotonic()
        if len(self._watched) >= _MOST_WATCHED:
            self._watched.clear()
        seen, since = self._watched.setdefault(place, (state, now))
        if seen != state:
            self._watched[place] = state, now
            return LeaseAnswer.HELD, state
        return (LeaseAnswer.TAKEN if now - since > seconds else LeaseAnswer.HELD), state

    def _put_if(self, place: str, content: bytes, condition: Any) -> str | None:
        """Put on a condition. Returns the new state of the object; ``None`` if the condition did not hold."""
        try:
            put = obstore.put(self._store, place, content, mode=condition, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError):
            return None
        except (exceptions.NotSupportedError, NotImplementedError):
            return None
        return put["e_tag"] or None

    def _find(self, place: str) -> Any:
        """Returns an object, whose content is not read yet. Raises :class:`AbsentError` if there is none."""
        try:
            with _in_words():
                return obstore.get(self._store, place)
        except AbsentError as error:
            self.denies_missing |= error.is_denied
            raise

    def _place(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _lease(self, name: str) -> str:
        return f"{self._prefix}lease/{name}"


def _bounded(found: Any, most_bytes: int, note: Callable[[int], object]) -> bytes:
    """Returns the content, of which a server may send more than its headers state."""
    parts, received, progress = [], 0, ValueProgress(note)
    with _in_words():
        for part in found.stream(min_chunk_size=_PIECE_BYTES):
            parts.append(bytes(part))
            received += len(parts[-1])
            progress.add(parts[-1])
            if received > most_bytes:
                raise RemoteError(f"an object is longer than {most_bytes} bytes")
    return b"".join(parts)


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() else 0


def _content(token: str) -> bytes:
    """Returns a new content for each renewal, since the state of an object is often its content's digest."""
    return f"{token} {secrets.token_hex(8)}".encode()


@contextlib.contextmanager
def _in_words(method: str = "GET") -> Iterator[None]:
    """Turn what obstore raises into a :class:`RemoteError`. ``method``: of the calls that are made within."""
    try:
        yield
    except RemoteError:
        raise
    except Exception as error:  # noqa: BLE001 - obstore's errors have no common base with those of its arguments
        raise _answer(error, method) from None


def _answer(error: Exception, method: str) -> RemoteError:
    """Returns what an error of obstore says that the store answered, by status, code and words; or that none came."""
    text = str(error)
    words, _, source = text.partition("\n\nDebug source:")
    answered = _ANSWERED.search(words)
    status = (
        int(answered[1]) if answered is not None else next((s for kind, s in _STATUSES if isinstance(error, kind)), 0)
    )
    if not status:
        is_silence = "TimedOut" in source or "timed out" in text
        causes = [message or f"certificate: {fault}" for message, fault in _CAUSES.findall(source)]
        why = causes[-1] if causes else words.rpartition(" - ")[2]  # not the URL before it
        return RemoteError(in_one_line(why), Answer.SILENT if is_silence else Answer.BROKEN)
    body = words[answered.end() :] if answered is not None else ""
    code, said = (found[1] if (found := tag.search(body)) else "" for tag in (_CODE, _MESSAGE))
    meaning = meaning_of(method, status, code, hides_missing=True)
    if meaning is Answer.ABSENT:
        return AbsentError(is_denied=status == _DENIED)
    phrase = answered[2] if answered is not None else ""
    return RemoteError(in_one_line(f"it answers {method} with {status} {phrase}".rstrip(), code, said), meaning)
