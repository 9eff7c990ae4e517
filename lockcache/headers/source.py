r"""What one text of C++ may include: the operands of its directives. Finds too much sooner than too little.

Keeps invariant 1 for the digest of headers: no ``#include`` that NVRTC would follow is overlooked. Conditionals,
strings and most comments are not understood: a directive under ``#if 0`` counts, and so does one in a raw string. A
directive is taken wherever ``#`` begins a line or follows ``*/``, so that ``// #include`` and `` * #include``, which
the documentation in headers is full of, do not count.

How NVRTC 13.5 reads was tried, not looked up: it joins lines at ``\``-newline and not at ``\``-blank-newline; a lone
carriage return ends no line; ``??/`` and ``??=`` mean something up to C++14 only, so both readings count; ``%:`` is
``#``; form feeds and comments may stand anywhere in a directive; a name takes no escapes and drops a final ``/``;
``#import`` and ``#embed`` are unknown to it (a later one may know them); ``#line`` does not move the directory that
names are relative to; a byte order mark, UTF-16 and modules are errors.

Not promised: to see ``__has_include`` that is pasted together from three or more pieces.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

__all__ = ["INCLUDE", "NEXT", "PROBE", "Node", "Operand", "Source", "scan", "scan_remembered"]

INCLUDE, NEXT, PROBE = "include", "include_next", "__has_include"


class Operand(NamedTuple):
    """A file that is named literally."""

    #: INCLUDE, NEXT or PROBE.
    verb: str
    #: ``"x.h"``, so looked for beside the file that names it, too; else ``<x.h>``.
    quoted: bool
    name: bytes


class Source(NamedTuple):
    """What one text asks for. Lines are excerpts for messages, empty where there is no finding."""

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


class Node(NamedTuple):
    """A source, or a file that it may include."""

    #: In the order of discovery; the source is 0.
    number: int
    path: bytes
    directory: bytes
    source: Source


# Unrolled, so that no input makes it backtrack: the plain /\*.*?\*/ under a star is exponential.
_COMMENT = rb"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/"
_GAP = rb"(?:[ \t\v\f\r]|" + _COMMENT + rb")*"
_BLANK = b" \t\v\f\r"
_SPLICE = re.compile(rb"\\\r?\n")
_OPERAND = rb"(?:\"(?P<quoted>[^\"\n\0]+)\"|<(?P<angled>[^>\n\0]+)>)?"
# Only the first character is consumed, the rest is looked at: a `#` in a comment, with a `/*` behind it, must not take
# the directives up to the next `*/` along.
_DIRECTIVE = re.compile(
    rb"[#%](?=:?" + _GAP + rb"(?P<verb>include_next|include|import|embed)\b" + _GAP + _OPERAND + rb")"
)
_QUESTION = re.compile(
    rb"(?P<verb>__has_(?:include_next|include|embed))\b(?=(?P<call>" + _GAP + rb"\(" + _GAP + _OPERAND + rb")?)"
)
# `#ifdef __has_include` and `defined(__has_include)` ask about the compiler, not about a file; `#define __has_include`,
# for compilers that have none, is ignored by NVRTC.
_ABOUT = re.compile(rb"(?:\bdefined[ \t]*\(?|\b(?:el)?ifn?def|\bdefine|\bundef)[ \t]*$")
# __has_include cut in two at any place leaves one of these words; CCCL 3.3 has none of them.
_PIECE = re.compile(rb"\b(?:__ha(?:s(?:_(?:i(?:n(?:c(?:l(?:ud?)?)?)?)?)?)?)?|_has_include|has_include|as_include)\b")
_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")
_DEFINE = re.compile(rb"[#%](?=:?" + _GAP + rb"define\b" + _GAP + rb"\w+(?:\([^)\n]*\))?(?P<body>[^\n]*))")
_STRING = re.compile(rb"\"([^\"\n]*)\"")
_REMARK = re.compile(_COMMENT + rb"|//[^\n]*")
# ".." that is no "...", or a slash with nothing before it: the beginnings of a path that leads out.
_OUTWARD = re.compile(rb"(?<!\.)\.\.(?!\.)|(?:^|<)[ \t]*/")
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
    """What the text can make NVRTC read."""
    first = _scan_spliced(_SPLICE.sub(b"", text) if b"\\" in text else text)
    if b"??" not in text:
        return first
    old = _TRIGRAPH.sub(lambda match: _TRIGRAPHS[match[1]], text)
    return _join(first, _scan_spliced(_SPLICE.sub(b"", old)))


def _join(one: Source, other: Source) -> Source:
    # By hand and not by a loop over the fields: tuples of both, the first line that is not empty.
    return Source(
        tuple(dict.fromkeys(one.operands + other.operands)),
        one.computed or other.computed,
        one.computed_probe or other.computed_probe,
        tuple(dict.fromkeys(one.outward + other.outward)),
        one.outward_pieces or other.outward_pieces,
        one.clock or other.clock,
    )


def _scan_spliced(text: bytes) -> Source:
    operands, computed = _directives(text)
    probes, computed_probe = _questions(text)
    outward, pieces = _definitions(text)
    clock = _CLOCK.search(text) if b"__DATE__" in text or b"__TIME" in text else None
    # A set would do, but the order of the text makes messages and digests easier to compare.
    return Source(
        tuple(dict.fromkeys(operands + probes)), computed, computed_probe, outward, pieces, clock[0] if clock else b""
    )


def _directives(text: bytes) -> tuple[list[Operand], bytes]:
    found: list[Operand] = []
    computed = b""
    for match in _DIRECTIVE.finditer(text):
        if not _begins_line(text, match.start()):
            continue
        if match["quoted"] or match["angled"]:
            found.append(_operand(NEXT if match["verb"] == b"include_next" else INCLUDE, match))
        else:
            computed = computed or _line(text, match.start())
    return found, computed


def _begins_line(text: bytes, position: int) -> bool:
    """Whether nothing but blanks stands before ``position`` in its line, or since the end of a comment."""
    before = text[text.rfind(b"\n", 0, position) + 1 : position]
    return not before.rpartition(b"*/")[2].strip(_BLANK)


def _questions(text: bytes) -> tuple[list[Operand], bytes]:
    found: list[Operand] = []
    piece = _PIECE.search(text) if b"##" in text or b"%:%:" in text else None
    computed = _line(text, piece.start()) if piece else b""
    if b"__has_" not in text:
        return found, computed
    for match in _QUESTION.finditer(text):
        if match["quoted"] or match["angled"]:
            # Where the next one is depends on where the file itself was found, so each place counts.
            found.append(_operand(NEXT if match["verb"] == b"__has_include_next" else PROBE, match))
        elif not _is_harmless(text, match.start()):
            computed = computed or _line(text, match.start())
    return found, computed


def _is_harmless(text: bytes, position: int) -> bool:
    """Whether the word there asks about the compiler, or stands in a line that is a comment."""
    before = text[text.rfind(b"\n", 0, position) + 1 : position]
    return bool(_ABOUT.search(before)) or (before.lstrip(_BLANK).startswith(b"//") and b"*/" not in before)


def _definitions(text: bytes) -> tuple[tuple[Operand, ...], bytes]:
    """What macros could make of a computed name that leads out of the searched directories."""
    outward: list[Operand] = []
    pieces = b""
    for match in _DEFINE.finditer(text):
        body = _whole(text, match)
        if b"/" not in body and b".." not in body:
            continue
        outward += [Operand(INCLUDE, True, name) for name in _STRING.findall(body) if _OUTWARD.search(name)]
        if _OUTWARD.search(_REMARK.sub(b" ", _STRING.sub(b'""', body))):
            pieces = pieces or _line(text, match.start())
    return tuple(outward), pieces


def _whole(text: bytes, match: re.Match[bytes]) -> bytes:
    """The body of a macro, and on behind a comment that goes on over the next lines."""
    start, end = match.span("body")
    while (opened := text.rfind(b"/*", start, end)) > text.rfind(b"*/", start, end):
        closed = text.find(b"*/", opened + 2)
        end = len(text) if closed < 0 else text.find(b"\n", closed + 2)
        if end in (-1, len(text)):
            return text[start:]
    return text[start:end]


def _operand(verb: str, match: re.Match[bytes]) -> Operand:
    quoted = match["quoted"] is not None
    name: bytes = match["quoted"] if quoted else match["angled"]
    # NVRTC takes "x.h/" for "x.h".
    return Operand(verb, quoted, name.rstrip(b"/") or name)


def _line(text: bytes, position: int) -> bytes:
    start = text.rfind(b"\n", 0, position) + 1
    return text[start : start + 200].partition(b"\n")[0].strip()


#: Findings by digest of the text: a program asks for the same few hundred sources over and over. Emptied when full.
_seen: dict[bytes, Source] = {}
_SEEN_LIMIT = 4096


def scan_remembered(text: bytes) -> Source:
    """:func:`scan`, remembered. For sources; what files hold is remembered with the file."""
    digest = hashlib.sha256(text, usedforsecurity=False).digest()
    source = _seen.get(digest)
    if source is None:
        source = scan(text)
        if len(_seen) >= _SEEN_LIMIT:
            _seen.clear()
        _seen[digest] = source
    return source
