# SPDX-License-Identifier: Apache-2.0
"""A TOML file, and on which of its lines each key stands.

Keeps one promise: whatever is wrong with the file, the line that has to be changed is named. Python's parser names
lines of syntax errors only. For other mistakes longer and longer beginnings of the file are parsed, until the key is
there. The statement is found by bisection: with fifty directories and a mistake in each, trying every line held up a
reload for seconds. It costs nothing while the file has no mistake.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
import sys
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# No file of settings is that long; a device or the wrong file is.
_LARGEST_BYTES: Final = 1 << 20

_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")


class MalformedError(ValueError):
    """The file is not TOML; the message begins with file and line."""


class Document:
    """A TOML file, read once. Raises :class:`OSError` and :class:`MalformedError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        raw = _read(path)
        if len(raw) > _LARGEST_BYTES:
            raise MalformedError(f"{path}: more than {_LARGEST_BYTES} bytes; accepted: a file of settings in TOML")
        text = _decode(path, raw).replace("\r\n", "\n")
        self.data: dict[str, Any] = _parse(path, text)
        self._lines = text.split("\n")
        self._ends: list[int] = []

    def where(self, *keys: str | int) -> str:
        """Returns ``FILE:LINE`` of a key that is in the document, or of the table that it is in."""
        ends = self._ends = self._ends or _ends_of_statements(self._lines)

        def is_there(end: int) -> bool:
            return _has(tomllib.loads("\n".join(self._lines[:end])), keys)

        found = bisect.bisect_left(ends, True, key=is_there)
        return self.path if found == len(ends) else f"{self.path}:{ends[found - 1] + 1 if found else 1}"


def _read(path: str) -> bytes:
    with open(path, "rb", opener=_open_at_once) as file:
        # A pipe could not be read again at a SIGHUP.
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise MalformedError(f"{path}: not a regular file; accepted: a file of settings in TOML")
        return file.read(_LARGEST_BYTES + 1)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a FIFO is refused, not waited for


def _ends_of_statements(lines: list[str]) -> list[int]:
    """Returns the number of the last line of each statement: arrays and texts may have several lines."""
    ends, begin = [], 0
    for end in range(1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[begin:end]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a statement that spans lines
        ends.append(end)
        begin = end
    return ends


def _decode(path: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise MalformedError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; accepted: UTF-8") from None


def _parse(path: str, text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
        repr(data)  # so that each value can be shown: not one of 5,000 hexadecimal digits
    except tomllib.TOMLDecodeError as error:
        lines = text.rstrip("\n").split("\n")
        place = _PLACE.search(str(error))
        number = int(place[1]) if place and place[1] else len(lines)
        what = _PLACE.sub(f", column {place[2]}" if place and place[2] else "", str(error))
        shown = lines[min(number, len(lines)) - 1].strip()
        raise MalformedError(f'{path}:{number}: {what}: {shown!r}; accepted: TOML, such as max_size = "10G"') from None
    except (ValueError, RecursionError) as error:  # numbers of 5,000 digits, a thousand brackets in one another
        raise MalformedError(f"{path}: {error}; accepted: a file of settings in TOML") from None
    return data


def _has(data: Any, keys: tuple[str | int, ...]) -> bool:
    for key in keys:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
