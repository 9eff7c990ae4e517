# SPDX-License-Identifier: Apache-2.0
r"""The includes of one text of C++: the operands of its directives. Finds too much sooner than too little.

Keeps invariant 1 (a hit is whole) for the digest of headers: no ``#include`` that NVRTC would follow is overlooked.
Conditionals, strings and most comments are not understood: a directive under ``#if 0`` counts, and so does one in a raw
string. A directive is taken wherever ``#`` begins a line or follows ``*/``, so that ``// #include`` and `` *
#include``, which the documentation in headers is full of, do not count.

How NVRTC 13.5 reads was tried, not looked up: it joins lines at ``\``-newline and not at ``\``-blank-newline; a lone
carriage return ends no line; ``??/`` and ``??=`` mean something up to C++14 only, so both readings count; ``%:`` is
``#``; form feeds and comments may stand anywhere in a directive; a name takes no escapes and drops a final ``/``;
``#import`` and ``#embed`` are unknown to it (a later one may know them); ``#line`` does not move the directory that
names are relative to; a byte order mark, UTF-16 and modules are errors.

Any text is scanned in time that grows with its length and no faster: what is searched from several places of a text
(the end of a comment, of a line, of a name) is searched once, or only so far.

Not promised: to see ``__has_include`` that is pasted together from three or more pieces.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from lockcache.headers import paths
from lockcache.headers.comments import Gaps
from lockcache.headers.macros import Macros
from lockcache.headers.paths import PathUse

INCLUDE, NEXT, PROBE = "include", "include_next", "__has_include"


class Operand(NamedTuple):
    """A file that is named literally."""

    #: INCLUDE, NEXT or PROBE.
    verb: str
    #: ``"x.h"``, so looked for next to the file that names it, too; else ``<x.h>``.
    quoted: bool
    name: bytes


class Source(NamedTuple):
    """The includes of one text. Lines are excerpts for messages, empty if there is no finding."""

    operands: tuple[Operand, ...]
    #: A line that includes what a macro says.
    computed: bytes
    #: A line that asks ``__has_include`` for what a macro says, or hides ``__has_include`` itself in one.
    computed_probe: bytes
    #: Literals in macros that lead out of the directories that are searched: ``"../x.h"``, ``"/etc/x.h"``.
    outward: tuple[Operand, ...]
    #: A macro from which such a name could be composed.
    outward_pieces: bytes
    #: ``__DATE__`` or a relative.
    clock: bytes
    #: What the text does with the paths of files.
    paths: PathUse


class Node(NamedTuple):
    """A source, or a file that it may include."""

    #: In the order of discovery; the source is 0.
    number: int
    path: bytes
    directory: bytes
    source: Source


_BLANK: Final = b" \t\v\f\r"
_SPLICE = re.compile(rb"\\\r?\n")
# Only the first character is consumed, the rest is looked at: a `#` in a comment, with a `/*` behind it, must not take
# the directives up to the next `*/` along. Where a comment follows, the word is behind it. Each of the two has its own:
# an expression that begins with a character is searched for ten times as fast as one that begins with a set.
_VERBS = rb"include_next|include|import|embed|define"
_HASH, _PERCENT = (
    re.compile(sign + rb"(?=(?P<start>:?)[ \t\v\f\r]*(?:(?P<verb>" + _VERBS + rb")\b|/\*))") for sign in (b"#", b"%")
)
_VERB = re.compile(rb"(?P<verb>" + _VERBS + rb")\b")
_QUESTION = re.compile(rb"(?P<verb>__has_(?:include_next|include|embed))\b")
# Longer than any path that can be opened.
_LONGEST_NAME = 4096
# How far back a line is read to tell whether it is a comment, and what a word is about.
_LONGEST_REMARK, _LONGEST_ABOUT = 4096, 100
# `#ifdef __has_include` and `defined(__has_include)` ask about the compiler, not about a file; `#define __has_include`,
# for compilers that have none, is ignored by NVRTC.
_ABOUT = re.compile(rb"(?:\bdefined(?:[ \t]*\()?|\b(?:el)?ifn?def|\bdefine|\bundef)[ \t]*$")
# __has_include cut in two at any place leaves one of these words; CCCL 3.3 has none of them.
_PIECE = re.compile(rb"\b(?:__ha(?:s(?:_(?:i(?:n(?:c(?:l(?:ud?)?)?)?)?)?)?)?|_has_include|has_include|as_include)\b")
# The same without what stands in front of it: texts that have neither are passed over quickly.
_PIECE_SIGNS = (
    re.compile(rb"__ha(?:s(?:_(?:i(?:n(?:c(?:l(?:ud?)?)?)?)?)?)?)?\b"),
    re.compile(rb"as_include(?<!__has_include)\b"),
)
_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")
_TRIGRAPHS = {
    b"=": b"#",
    b"/": b"\\",
    b"'": b"^",
    b"(": b"[",
    b")": b"]",
    b"!": b"|",
    b"<": b"{",
    b">": b"}",
    b"-": b"~",
}
_TRIGRAPH = re.compile(rb"\?\?([=/'()!<>-])")


def scan(text: bytes) -> Source:
    """Returns what the text can make NVRTC read."""
    first = _scan_spliced(_SPLICE.sub(b"", text) if b"\\" in text else text)
    if b"??" not in text:
        return first
    old = _TRIGRAPH.sub(lambda match: _TRIGRAPHS[match[1]], text)
    return _join(first, _scan_spliced(_SPLICE.sub(b"", old)))


def _join(one: Source, other: Source) -> Source:
    # Written out, not as a loop over the fields: the tuples of both, and the first line that is not empty.
    return Source(
        tuple(dict.fromkeys(one.operands + other.operands)),
        one.computed or other.computed,
        one.computed_probe or other.computed_probe,
        tuple(dict.fromkeys(one.outward + other.outward)),
        one.outward_pieces or other.outward_pieces,
        one.clock or other.clock,
        one.paths | other.paths,
    )


def _scan_spliced(text: bytes) -> Source:
    gaps = Gaps(text)
    hashes = _hashes(text, gaps)
    operands, computed = _directives(text, hashes)
    probes, computed_probe = _questions(text, gaps)
    outward, pieces = _definitions(text, gaps, hashes)
    clock = clock_in(text)
    # A set would do, but the order of the text makes messages and digests easier to compare.
    return Source(
        tuple(dict.fromkeys(operands + probes)),
        computed,
        computed_probe,
        outward,
        pieces,
        clock,
        paths.scan(text),
    )


class _Hash(NamedTuple):
    """A ``#`` with a verb."""

    start: int
    verb: bytes
    #: Where its operand is.
    behind: int


def _hashes(text: bytes, gaps: Gaps) -> list[_Hash]:
    """Returns each ``#`` with one of the verbs, in the order of the text."""
    matches = [*_HASH.finditer(text)]
    if b"%" in text and (others := [*_PERCENT.finditer(text)]):
        matches = sorted(matches + others, key=re.Match.start)
    found: list[_Hash] = []
    for match in matches:
        named: re.Match[bytes] | None = match
        if match["verb"] is None:
            named = _VERB.match(text, gaps.end(match.end("start")))
        if named is not None:
            found.append(_Hash(match.start(), named["verb"], gaps.end(named.end("verb"))))
    return found


def _directives(text: bytes, hashes: list[_Hash]) -> tuple[list[Operand], bytes]:
    found: list[Operand] = []
    computed = b""
    for start, verb, behind in hashes:
        if verb == b"define" or not _begins_line(text, start):
            continue
        operand = _operand(NEXT if verb == b"include_next" else INCLUDE, text, behind)
        if operand is not None:
            found.append(operand)
        else:
            computed = computed or _line(text, start)
    return found, computed


def _begins_line(text: bytes, position: int) -> bool:
    """Returns whether only blanks precede ``position`` in its line, or since the end of a comment."""
    while position and text[position - 1] in _BLANK:
        position -= 1
    return position == 0 or text[position - 1 : position] == b"\n" or text[max(0, position - 2) : position] == b"*/"


def _questions(text: bytes, gaps: Gaps) -> tuple[list[Operand], bytes]:
    found: list[Operand] = []
    is_pasting = (b"##" in text or b"%:%:" in text) and any(sign.search(text) for sign in _PIECE_SIGNS)
    piece = _PIECE.search(text) if is_pasting else None
    computed = _line(text, piece.start()) if piece else b""
    if b"__has_" not in text:
        return found, computed
    for match in _QUESTION.finditer(text):
        opened = gaps.end(match.end())
        # The place of the next file depends on where this file was found, so each place counts.
        verb = NEXT if match["verb"] == b"__has_include_next" else PROBE
        operand = _operand(verb, text, gaps.end(opened + 1)) if text.startswith(b"(", opened) else None
        if operand is not None:
            found.append(operand)
        elif not _is_harmless(text, match.start()):
            computed = computed or _line(text, match.start())
    return found, computed


def _is_harmless(text: bytes, position: int) -> bool:
    """Returns whether the word at ``position`` asks about the compiler, or is in a line that is a comment."""
    before = _text_before(text, position, _LONGEST_REMARK)
    if before.lstrip(_BLANK).startswith(b"//") and b"*/" not in before:
        return len(before) < _LONGEST_REMARK  # else it may be cut out of the middle of a line
    return bool(_ABOUT.search(before, max(0, len(before) - _LONGEST_ABOUT)))


def _definitions(text: bytes, gaps: Gaps, hashes: list[_Hash]) -> tuple[tuple[Operand, ...], bytes]:
    """Returns the names outside of the searched directories that macros could compute."""
    macros = Macros(text, gaps)
    for start, verb, name in hashes:
        if verb == b"define":
            macros.add(start, name)
    outward = tuple(Operand(INCLUDE, True, name) for name in macros.names)
    return outward, b"" if macros.pieces is None else _line(text, macros.pieces)


def _operand(verb: str, text: bytes, start: int) -> Operand | None:
    """Returns the name at ``position``, in quotes or brackets; None for anything else."""
    closing = {b'"': b'"', b"<": b">"}.get(text[start : start + 1])
    if closing is None:
        return None
    name = text[start + 1 : max(start, text.find(closing, start + 1, start + 2 + _LONGEST_NAME))]
    if not name or b"\n" in name or b"\0" in name:
        return None
    # NVRTC takes "x.h/" for "x.h".
    return Operand(verb, closing == b'"', name.rstrip(b"/") or name)


def _text_before(text: bytes, position: int, most_bytes: int) -> bytes:
    """Returns the last ``most_bytes`` before ``position`` in its line."""
    return text[max(0, position - most_bytes) : position].rpartition(b"\n")[2]


def _line(text: bytes, position: int) -> bytes:
    """Returns an excerpt of the line for a message; not empty, wherever in the line ``position`` is."""
    return (_text_before(text, position, 100) + text[position : position + 200].partition(b"\n")[0]).strip()[:200]


# What a directive or __has_include contains, also where a spliced line or a pasting macro cuts the word in two.
_SIGNS_OF_INCLUDES: Final = (b"include", b"\\\n", b"\\\r\n", b"??/", b"__has", b"##", b"%:%:")


def clock_in(text: bytes) -> bytes:
    """Returns the first macro that stands for the time of the compilation, outside of comments; empty for none."""
    if b"__DATE__" not in text and b"__TIME" not in text:
        return b""
    found = _CLOCK.search(paths.without_comments(text)) if _CLOCK.search(text) else None
    return found[0] if found else b""


def may_include(code: bytes, define_macro: object) -> bool:
    """Returns whether code, or a macro of its options, can make NVRTC read a file. Too much sooner than too little."""
    macros = str(define_macro).encode(errors="surrogatepass") if define_macro else b""
    return any(sign in code or sign in macros for sign in _SIGNS_OF_INCLUDES)


#: Findings by digest of the text: a program asks for the same few hundred sources repeatedly. Emptied when full.
_seen: dict[bytes, Source] = {}
_SEEN_LIMIT = 4096


def scan_remembered(text: bytes) -> Source:
    """Returns :func:`scan`, remembered. For sources; the scan of a file is remembered with the file."""
    digest = hashlib.sha256(text, usedforsecurity=False).digest()
    source = _seen.get(digest)
    if source is None:
        source = scan(text)
        if len(_seen) >= _SEEN_LIMIT:
            _seen.clear()
        _seen[digest] = source
    return source
