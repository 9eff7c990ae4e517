r"""Paths in the output: whether a text can put the path of a file that it is in, or includes, into compiled code.

Keeps the promise that a key holds no path that cannot reach the output, and each one that can. NVRTC names a file of
the search by the directory of ``include_path`` and the name as spelled, through these words alone (tried on NVRTC 13.5
with headers under two prefixes; debug and line information and LTO-IR name files without any word, which is for the key
to know):

- ``__FILE__`` and ``__builtin_FILE``, also pasted together by ``##``; ``source_location``, of CCCL or of a later
  NVRTC; other compilers' words for the same.
- ``assert``, which NVRTC defines.

A path that is only *printed* is a string that the code holds or does not hold: an argument of ``printf`` or of a failed
assertion. The output itself then says whether the path reached it. All of CCCL's uses are of this sort
(:data:`_CCCL`): its assertions are off unless a program asks for them, and its messages are the host's. Everything else
may depend on a path without holding it, as ``sizeof(__FILE__)`` does.

Words in comments are passed over; words under a false ``#if`` count. Time grows with the length of a text and no
faster. Not promised: to see a word that is pasted together from three or more pieces.
"""

from __future__ import annotations

import re
from enum import IntFlag
from typing import Final


class PathUse(IntFlag):
    """What texts do with paths. The uses of several texts are their union."""

    NONE = 0
    #: A path is printed: it is in the output as it is spelled, or it has not reached it.
    PRINTED = 1
    #: A path may reach the output in any form.
    USED = 2
    #: Words are pasted together by ``##``: it may be ``assert``.
    PASTES = 4
    #: A piece of ``__FILE__`` or ``__builtin_FILE``, which is one of them if some text pastes.
    PIECES = 8


_WORD: Final = re.compile(
    rb"\b(?:__FILE__|__FILEW__|__FILE_NAME__|__BASE_FILE__|__builtin_FILE(?:_NAME)?|__builtin_source_location"
    rb"|source_location)\b"
)
_WORDS_HAVE: Final = (b"FILE", b"source_location")
# Begins with what is searched for, and looks back then: static_assert is in every header.
_ASSERT: Final = re.compile(rb"assert(?<!\wassert)\b")
# The beginnings and ends of __FILE__ and __builtin_FILE: one of two operands of ## has to be among them.
_PIECE: Final = re.compile(
    rb"\b(?:__F(?:I(?:L(?:E_?)?)?)?|_?FILE__|__builtin_(?:F(?:IL?)?)?"
    rb"|(?:_?builtin|uiltin|iltin|ltin|tin|in|n)?_FILE)\b"
)
# What each piece has in it, to pass over nearly all texts quickly.
_PIECES_HAVE: Final = tuple(
    map(re.compile, (rb"__F(?:I(?:L(?:E_?)?)?)?\b", rb"__builtin_(?:F(?:IL?)?)?\b", rb"FILE__\b", rb"_FILE\b"))
)
_PASTE: Final = (b"##", b"%:%:")
_COMMENT_OR_TEXT: Final = re.compile(
    rb"//[^\n]*|/\*.*?(?:\*/|\Z)"
    rb'|"(?:[^"\\\n]|\\.)*"|(?<![0-9A-Za-z_])\'(?:[^\'\\\n]|\\.)*\'',
    re.DOTALL,
)
#: Stand in the headers of CCCL that name a path, and in no other code.
_CCCL: Final = (b"_CCCL_IMPLICIT_SYSTEM_HEADER", b"#define __CCCL_COMPILER_H")
#: A failed assertion of the toolkit's own headers, to which the path is an argument of its own.
_FAILED: Final = re.compile(rb"\b__assert\w*\((?:[^();]|\([^();]*\)){0,300}?,\s*__FILE__\s*,")


def scan(text: bytes) -> PathUse:
    """Returns what a text, of spliced lines, does with paths."""
    use = PathUse.NONE
    if any(paste in text for paste in _PASTE):
        use |= PathUse.PASTES
    if any(part.search(text) for part in _PIECES_HAVE) and _PIECE.search(text):
        use |= PathUse.PIECES
    if _ASSERT.search(text):
        use |= PathUse.PRINTED
    if any(part in text for part in _WORDS_HAVE) and _WORD.search(text):
        use |= _words(text)
    return use


def _words(text: bytes) -> PathUse:
    plain = _COMMENT_OR_TEXT.sub(_without_comment, text)
    if any(mark in plain for mark in _CCCL):
        return PathUse.PRINTED
    plain, failed = _FAILED.subn(b"", plain)
    use = PathUse.PRINTED if failed else PathUse.NONE
    return use | PathUse.USED if _WORD.search(plain) else use


def _without_comment(match: re.Match[bytes]) -> bytes:
    # Texts stay: _Pragma reads them. So does what a quote in a number hides, which is not a comment then.
    return b" " if match[0].startswith((b"//", b"/*")) else match[0]
