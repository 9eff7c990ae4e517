# SPDX-License-Identifier: Apache-2.0
r"""Paths in the output: whether a text can put the path of a file that it is in, or includes, into compiled code.

Keeps the promise that a key holds no path that cannot reach the output, and each one that can. NVRTC names a file of
the search by the directory of ``include_path`` and the name as spelled, through these words alone (tried on NVRTC 13.5
with headers under two prefixes; debug and line information and LTO-IR name files without any word, which is for the key
to know):

- ``__FILE__`` and ``__builtin_FILE``, also pasted together by ``##``; ``source_location``, of CCCL or of a later
  NVRTC; other compilers' words for the same.
- ``assert``, which NVRTC defines.

A path that is only *printed* is a string that the code holds or does not hold: an argument of a failed assertion. The
output itself then says whether the path reached it. The headers of CCCL and of the toolkit use their paths in the ways
that are listed (:data:`_PRINTS`), and in no others: their assertions are off unless a program asks for them, and their
messages are the host's. Everything else may depend on a path without holding it, as ``sizeof(__FILE__)`` does; so may
a text that names the function which a failed assertion calls, since it may put another in its place.

Words in comments are passed over, unless the text has something that makes it hard to say what a comment is; words
under a false ``#if`` count. Time grows with the length of a text and no faster. Not promised: to see a word that is
pasted together from three or more pieces of which one has one or two letters.
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
    #: A piece of ``__FILE__``, ``__builtin_FILE`` or ``assert``, which is one of them if some text pastes.
    PIECES = 8


_WORD: Final = re.compile(
    rb"\b(?:__FILE__|__FILEW__|__FILE_NAME__|__BASE_FILE__|__builtin_FILE(?:_NAME)?|__builtin_source_location"
    rb"|source_location|_CCCL_BUILTIN_FILE|__assert(?:fail|_fail|_rtn|2)|__ASSERT_STR_HELPER)\b"
)
_WORDS_HAVE: Final = (b"FILE", b"source_location", b"__assert", b"__ASSERT")
# Begins with what is searched for, and looks back then: static_assert is in every header.
_ASSERT: Final = re.compile(rb"assert(?<!\wassert)\b")
# Of any pieces that make up __FILE__, __builtin_FILE or assert, one is among these, unless one has one or two letters.
# Not "_" and "__", which the toolkit's own headers paste.
_PIECE: Final = re.compile(
    rb"\b(?:__F(?:I(?:L(?:E_?)?)?)?|_?FI(?:L(?:E(?:__?)?)?)?|ILE__"
    rb"|__bu(?:i(?:l(?:t(?:i(?:n(?:_(?:F(?:IL?)?)?)?)?)?)?)?)?"
    rb"|(?:_?builtin|uiltin|iltin|ltin|tin|in|n)_F(?:I(?:LE?)?)?|_FILE|ass(?:er?)?|s?sert|ert)\b"
)
# The ends of these pieces, each beginning with a literal, to pass over nearly all texts quickly.
_PIECES_END: Final = tuple(
    map(
        re.compile,
        (
            rb"FI(?:L(?:E(?:__?)?)?)?\b",
            rb"ILE__\b",
            rb"__bu(?:il?|ilti?|iltin_?|iltin_FI?L?)?\b",
            rb"n_F\b",
            rb"ass(?:er?)?(?<!\wass)(?<!\wasse)(?<!\wasser)\b",
            rb"sert(?<!\w\wsert)\b",
            rb"ert(?<!\wert)\b",
        ),
    )
)
# A macro's # before a name, and not the # that begins a directive.
_STRINGIZED: Final = re.compile(rb"[^\s#][ \t]*#(?!#)[ \t]*\w")
_PASTE: Final = (b"##", b"%:%:")

# From a character that is odd on, compilers of different standards may disagree on what is a string: an apostrophe in a
# number or behind a prefix, a raw string, a quote that its line does not close.
_LEXICAL: Final = re.compile(
    rb"(?P<comment>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z))"
    rb"|(?P<odd>[\w.$\x80-\xff]'|[eEpP][+-]'|R\")"
    rb"|\"(?:[^\"\\\n]|\\[^\n])*\"|'(?:[^'\\\n]|\\[^\n])*'"
    rb"|(?P<unclosed>[\"'])"
)
_DIRECTIVE_HAS: Final = (b"#", b"%:", b"__has")
# The name of a header takes no escapes and has no comments.
_CUT_NAME: Final = re.compile(rb"\\\"|<[^<>\n]*/[/*]")

#: Headers with one of these may print paths. Stand in CCCL, in the toolkit, and in what is made like them.
_MARKS: Final = (b"_CCCL_IMPLICIT_SYSTEM_HEADER", b"#define __CCCL_COMPILER_H", b"#define __COMMON_FUNCTIONS_H__")
#: How these print them, as CCCL 3.3 and the toolkit 13 spell it; another spelling is a use. A space is any or none.
_PRINTS: Final = (
    # Assertions, and what they call.
    b"__assertfail(__ASSERT_STR_HELPER(e), __FILE__, __LINE__, __PRETTY_FUNCTION__, sizeof(char))",
    b"__assertfail(message, __FILE__, __LINE__, __func__, sizeof(char))",
    b"__assert_fail(message, __FILE__, __LINE__, __func__)",
    b"__assert_rtn(__func__, __FILE__, __LINE__, message)",
    b"__assert2(__FILE__, __LINE__, __func__, message)",
    b"_wassert(_CRT_WIDE(#message), __FILEW__, __LINE__)",
    b"#define __ASSERT_STR_HELPER(x) #x",
    *(b"void %s(" % name for name in (b"__assertfail", b"__assert_fail", b"__assert_rtn", b"__assert2")),
    # Messages of the compiler and of the host.
    b'message(__FILE__ ":" _CCCL_TO_STRING(__LINE__) ": warning: "',
    b'.pragma \\"\\n" __FILE__ "(" _CCCL_TO_STRING( __LINE__) "): %0"',
    b"Debug((cudaError_t) (e), __FILE__, __LINE__)",
    b"cub::Debug(error, __FILE__, __LINE__)",
    b'what(): %s\\nAborted\\n", __FILE__, __LINE__, #_TYPE,',
    # cuda::std::source_location itself; a text that names it uses its path.
    b"_CCCL_HAS_BUILTIN(__builtin_FILE)",
    b"define _CCCL_BUILTIN_FILE() __builtin_FILE()",
    b"define _CCCL_BUILTIN_FILE() __FILE__",
    b"const char* __file = _CCCL_BUILTIN_FILE()",
    b"class source_location {",
    b"explicit constexpr source_location( const char* __file,",
    b"static constexpr source_location current(",
    b"return source_location{__file,",
    b"constexpr source_location() = default;",
    b"#include <cuda/std/source_location>",
    b"::cuda::std::source_location __loc = ::cuda::std::source_location::current()",
)
_PRINTED: Final = re.compile(b"|".join(re.escape(each).replace(rb"\ ", rb"\s*") for each in _PRINTS))


def scan(text: bytes) -> PathUse:
    """Returns what a text, of spliced lines, does with paths."""
    use = PathUse.NONE
    if any(paste in text for paste in _PASTE):
        use |= PathUse.PASTES
    if any(end.search(text) for end in _PIECES_END) and _PIECE.search(text) and _PIECE.search(without_comments(text)):
        use |= PathUse.PIECES
    if _ASSERT.search(text):
        use |= _assertions(text)
    if any(part in text for part in _WORDS_HAVE) and _WORD.search(text):
        use |= _words(text)
    return use


def _assertions(text: bytes) -> PathUse:
    # What an assertion becomes can be made a text, by #, whose length says how long the path is.
    is_known = any(mark in text for mark in _MARKS) or not _STRINGIZED.search(text)
    return PathUse.PRINTED if is_known or not _ASSERT.search(without_comments(text)) else PathUse.USED


def _words(text: bytes) -> PathUse:
    plain = without_comments(text)
    use = PathUse.NONE
    if any(mark in plain for mark in _MARKS):
        plain, printed = _PRINTED.subn(b" ", plain)
        use = PathUse.PRINTED if printed else use
    return use | PathUse.USED if _WORD.search(plain) else use


def without_comments(text: bytes) -> bytes:
    """Returns the text without its comments; with them where compilers may disagree on what is one."""
    if _cuts_name(text):
        return text
    parts, position = [], 0
    for match in _LEXICAL.finditer(text):
        if match["odd"] or match["unclosed"]:
            return text
        if match["comment"]:
            parts.append(text[position : match.start()])
            position = match.end()
    return b" ".join([*parts, text[position:]])


def _cuts_name(text: bytes) -> bool:
    """Returns whether a line with a directive or ``__has_include`` may have a name that looks like a comment."""
    end = 0
    while (found := _CUT_NAME.search(text, end)) is not None:  # within a line
        begin = text.rfind(b"\n", end, found.start()) + 1
        end = text.find(b"\n", found.end())
        end = len(text) if end < 0 else end
        if any(text.find(sign, begin, end) >= 0 for sign in _DIRECTIVE_HAS):
            return True
    return False
