# SPDX-License-Identifier: Apache-2.0
"""Ends of blanks and comments, in a text that may be made to be hard to read.

Keeps invariant 7 (never take the job down) for headers: every question is answered in time that grows with the length
of the text and no faster, whatever stands in it. A regular expression that skips comments reads on to the same distant
``*/`` from each place at which it is tried: 8 KiB of ``#/*a`` took seconds.

Strings are not understood: what looks like a comment in one counts as one.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from typing import Final

_BLANKS: Final = re.compile(rb"[ \t\v\f\r]*")
_CLOSE: Final = re.compile(rb"\*/")


class Gaps:
    """The ends of the gaps between the words of one text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        #: The places where comments may end, and the end of the gap behind each. Seldom needed, so made on demand.
        self._closes: array[int] | None = None
        self._ends: array[int] = array("Q")

    def end(self, position: int) -> int:
        """Returns the first place from ``position`` on outside of blanks and comments. An open comment ends no gap."""
        position = self._after_blanks(position)
        if not self._text.startswith(b"/*", position):
            return position
        closes = self._comments()
        index = bisect_left(closes, position + 2)
        return self._ends[index] if index < len(closes) else position

    def closed(self, position: int) -> int | None:
        """Returns the position of the first ``*/`` from ``position`` on."""
        closes = self._comments()
        index = bisect_left(closes, position)
        return closes[index] if index < len(closes) else None

    def _comments(self) -> array[int]:
        if self._closes is None:
            self._closes = array("Q", (close.start() for close in _CLOSE.finditer(self._text)))
            self._ends = self._chain(self._closes)
        return self._closes

    def _after_blanks(self, position: int) -> int:
        blanks = _BLANKS.match(self._text, position)
        return blanks.end() if blanks else position

    def _chain(self, closes: array[int]) -> array[int]:
        """Returns the end of the gap behind each comment, from the last one to the first: each leads to a later one."""
        ends = array("Q", closes)
        for index in range(len(closes) - 1, -1, -1):
            ends[index] = after = self._after_blanks(closes[index] + 2)
            if self._text.startswith(b"/*", after):
                following = bisect_left(closes, after + 2, index + 1)
                ends[index] = ends[following] if following < len(closes) else after
        return ends
