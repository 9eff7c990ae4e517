"""Text from outside, made fit for XML and HTML: what neither can hold, however escaped, is shown as an escape."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["printable"]

# https://www.w3.org/TR/xml/#charsets: all that is not a Char, lone surrogates (names in other encodings) included.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: object) -> str:
    """``text`` with such characters as ``\\x1b`` and the like."""
    return _FORBIDDEN.sub(lambda found: ascii(found[0])[1:-1], str(text))
