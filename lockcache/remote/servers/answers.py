# SPDX-License-Identifier: Apache-2.0
"""Answers of servers: what each of them means, decided in one table for every kind of server.

Keeps invariant 7 (never take the job down): an answer, whatever it says, comes from a server that lives. So only
silence and broken connections may keep a node from asking again (:mod:`lockcache.remote.wait_limits`), and a server
that refuses writes, such as one whose disk is full, is still read.
"""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["AbsentError", "Answer", "RemoteError", "in_one_line", "meaning_of"]

# Longer words of a server are cut.
_LONGEST_WORDS: Final = 240

# The methods by which HTTP names a call. A value can be missing for these alone.
_OF_A_VALUE: Final = ("GET", "HEAD", "DELETE")
_DENIED: Final = 403
_USER_IN_URL: Final = re.compile(r"//[^/\s@]*@")


class Answer(enum.Enum):
    """The kinds of answers, and of their lack."""

    #: The server has nothing under that name: a miss.
    ABSENT = enum.auto()
    #: The server refuses this call: it is full, busy, read-only or denies access. It lives, and other calls go on.
    REFUSED = enum.auto()
    #: This process is at fault, and others may be served: its password, its region or bucket, its client library.
    MISUSED = enum.auto()
    #: No answer of that protocol: the connection was refused or broke, or what came is garbage.
    BROKEN = enum.auto()
    #: No answer in the time that was waited.
    SILENT = enum.auto()
    #: A part of a large answer in that time: the server lives, and the link is too slow for such an answer.
    SLOW = enum.auto()


#: The answers of HTTP and of object stores by their status. Every other status that is not a success is a refusal.
_BY_STATUS: Final = {
    401: Answer.MISUSED,
    404: Answer.ABSENT,
    407: Answer.MISUSED,
    410: Answer.ABSENT,
}
#: The same by the code that the server states, which says more than a status. Every other code is a refusal.
_BY_CODE: Final = {
    # Valkey and Redis.
    "DENIED": Answer.MISUSED,
    "NOAUTH": Answer.MISUSED,
    "WRONGPASS": Answer.MISUSED,
    "DB index is out of range": Answer.MISUSED,
    # S3, and Google Cloud Storage in S3's words.
    "AuthorizationHeaderMalformed": Answer.MISUSED,
    "ExpiredToken": Answer.MISUSED,
    "InvalidAccessKeyId": Answer.MISUSED,
    "InvalidBucketName": Answer.MISUSED,
    "InvalidSecurity": Answer.MISUSED,
    "InvalidToken": Answer.MISUSED,
    "NoSuchBucket": Answer.MISUSED,
    "NoSuchKey": Answer.ABSENT,
    "PermanentRedirect": Answer.MISUSED,
    "RequestTimeTooSkewed": Answer.MISUSED,
    "SignatureDoesNotMatch": Answer.MISUSED,
    # Azure.
    "AuthenticationFailed": Answer.MISUSED,
    "BlobNotFound": Answer.ABSENT,
    "ContainerNotFound": Answer.MISUSED,
}
#: The codes of a 403 that stands for a missing value where the reader may not list what there is, as S3 documents it.
_HIDING: Final = ("", "AccessDenied")


def meaning_of(method: str, status: int = 0, code: str = "", *, hides_missing: bool = False) -> Answer:
    """Returns what an answer means to a call of this HTTP method. ``hides_missing``: of a store that may answer 403 for
    a value that is missing."""
    if hides_missing and status == _DENIED and method != "PUT" and code in _HIDING:
        return Answer.ABSENT
    answer = _BY_CODE.get(code) or _BY_STATUS.get(status, Answer.REFUSED)
    return Answer.REFUSED if answer is Answer.ABSENT and method not in _OF_A_VALUE else answer


def in_one_line(*words: str) -> str:
    """Returns the words of a server, which may be anything, as one short printable line without a password in it."""
    line = " ".join(": ".join(filter(None, words)).split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    line = _USER_IN_URL.sub("//", line).removesuffix(".")
    return line if len(line) <= _LONGEST_WORDS else line[: _LONGEST_WORDS - 3] + "..."


class RemoteError(Exception):
    """A call of a server failed. Counted by :class:`lockcache.remote.store.RemoteStore`, and never seen by users."""

    def __init__(self, words: str, answer: Answer = Answer.BROKEN, *, seconds: float = 0.0) -> None:
        super().__init__(words)
        self.answer = answer
        #: The seconds that the call was waited for.
        self.seconds = seconds


class AbsentError(RemoteError):
    """The server has nothing under that name. Raised and caught within a transport."""

    def __init__(self, *, is_denied: bool = False) -> None:
        super().__init__("it has no such entry", Answer.ABSENT)
        #: Whether the server said that access is denied.
        self.is_denied = is_denied
