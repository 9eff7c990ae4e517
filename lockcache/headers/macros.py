# SPDX-License-Identifier: Apache-2.0
"""Macros of one text, and what they could make of a computed name: strings and pieces that lead out of what is
searched.

Keeps invariant 1 (a hit is whole) together with :mod:`.source`: finds too much sooner than too little. Reads each line
once for each macro that begins in it, if the line is short, and once altogether if it is not; and what stands behind a
comment that macros leave open once, however many do.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lockcache.headers.comments import Gaps

_HEAD: Final = re.compile(rb"\w+(?:\([^)\n]*\))?")
_STRING: Final = re.compile(rb"\"([^\"\n]*)\"")
# An open comment goes to the end, so that nothing is searched for its end twice.
_REMARK: Final = re.compile(rb"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
# ".." that is not "...", or a slash with nothing before it: the beginnings of a path that leads out.
_OUTWARD: Final = re.compile(rb"(?<!\.)\.\.(?!\.)|(?:^|<)[ \t]*/")
# Macros that begin in one line are parts of each other. Nobody writes longer lines with several.
_LONG_LINE_BYTES: Final = 512


class _Rest(NamedTuple):
    """The text behind a comment that a macro leaves open, up to the macro's end."""

    leads_out: bool
    #: The first character that is not a blank, or nothing.
    begins: bytes


class Macros:
    """Collects what the macros of one text hold, in the order of the text."""

    def __init__(self, text: bytes, gaps: Gaps) -> None:
        self._text = text
        self._gaps = gaps
        #: Of the line that was looked at last: where its first macro has its name, and its end.
        self._line = (0, -1)
        self._furthest = self._crowd = -1
        self._rests: dict[int, _Rest] = {}
        #: Literals that lead out.
        self.names: list[bytes] = []
        #: Where the first macro is that a name which leads out could be composed from.
        self.pieces: int | None = None

    def add(self, start: int, name: int) -> None:
        """Take in the macro whose directive is at ``start`` and whose name is at ``name``. In the order of the text."""
        # What looks like a directive in each comment of a chain leads to the one macro behind the chain.
        if name == self._furthest:
            return None
        self._furthest = max(name, self._furthest)
        begin, end = self._line
        if not begin <= name <= end:
            begin, end = self._line = name, _line_end(self._text, name)
        elif end - begin > _LONG_LINE_BYTES:
            return self._crowded(start, begin, end)
        if (head := _HEAD.match(self._text, name)) is not None:
            self._read(start, head.end(), end)
        return None

    def _crowded(self, start: int, begin: int, end: int) -> None:
        """Check a long line with several macros once for all of them: whether anything in it could lead out."""
        if self._crowd != end:
            self._crowd = end
            line = self._text[begin:end]
            if b"/" in line or b".." in line:
                self._found_pieces(start)

    def _read(self, start: int, begin: int, end: int) -> None:
        body = self._text[begin:end]
        closed = self._closed(begin, end)
        if closed is None and b"/" not in body and b".." not in body:
            return
        self._take_names(body)
        rest = _Rest(False, b"") if closed is None else self._rest(end, closed)
        if rest.leads_out or _OUTWARD.search(_bare(body) + rest.begins):
            self._found_pieces(start)

    def _found_pieces(self, start: int) -> None:
        self.pieces = start if self.pieces is None else self.pieces

    def _closed(self, start: int, end: int) -> int | None:
        """Returns where the comment that is open at ``end`` is closed; None if none is open, or it never is."""
        opened = self._text.rfind(b"/*", start, end)
        is_open = opened >= 0 and self._text.find(b"*/", opened + 2, end) < 0
        return self._gaps.closed(opened + 2) if is_open else None

    def _rest(self, end: int, closed: int) -> _Rest:
        """Returns what follows the comment that is open at ``end`` and ends at ``closed``; computed once for each."""
        chain: list[tuple[int, bytes]] = []
        following: int | None = closed
        while following is not None and following not in self._rests:
            self._take_names(self._text[end:following])
            end = _line_end(self._text, following)
            part = self._text[following + 2 : end]
            self._take_names(part)
            chain.append((following, _bare(part)))
            following = self._closed(following, end)
        rest = _Rest(False, b"") if following is None else self._rests[following]
        for place, part in reversed(chain):
            leads_out = rest.leads_out or bool(_OUTWARD.search(b"x " + part + rest.begins))
            rest = self._rests[place] = _Rest(leads_out, part.strip()[:1] or rest.begins)
        return rest

    def _take_names(self, text: bytes) -> None:
        self.names += [name for name in _STRING.findall(text) if _OUTWARD.search(name)]


def _line_end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end


def _bare(text: bytes) -> bytes:
    """Returns the text without the contents of strings and comments."""
    return _REMARK.sub(b" ", _STRING.sub(b'""', text))
