# SPDX-License-Identifier: Apache-2.0
r"""The files that C++ source can make NVRTC read, and whether it can read the clock. Finds too much sooner than too
little.

Keeps the contract's rule that external content needs an extra_digest, for what the code itself names. It does not
follow includes, macros or conditionals: a directive under ``#if 0`` counts, one in a ``//`` comment does not, one in a
block comment counts if it begins a line. What hides directives from a plain search was tried on NVRTC 13.5 and is seen
through: ``\``-newline and ``??/``-newline in the middle of a word, ``%:`` and ``??=`` for ``#``, comments before and
behind the ``#``, ``include_next``, and macros in place of the name. ``#embed`` is not known to that NVRTC; a later one
may know it. A ``#`` with more or longer comments behind it than anybody writes counts as one that may lead anywhere: so
any code is scanned in time that grows with its length and no faster.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lockcache.headers import clock_in


class Reads(NamedTuple):
    """The first finding of each sort, as it stands in the code; empty where there is none."""

    #: ``__DATE__`` or a relative.
    clock: str
    #: A path that may lead anywhere: absolute, with ``..``, or hidden behind a macro.
    file: str
    #: ``"x.h"``: looked for next to the source.
    beside: str


_NOTHING = Reads("", "", "")

_BLANKS = rb"[ \t\v\f\r]*"
# Bounded, each and together: from every `#` they may be the same.
_COMMENT = rb"/\*(?:[^*]|\*(?!/)){0,200}\*/"
_GAP = _BLANKS + rb"(?:" + _COMMENT + _BLANKS + rb"){0,4}"
_LOST = rb"(?:" + _GAP + rb"(?!" + _COMMENT + rb")|" + _GAP.replace(b"{0,4}", b"{4}") + rb")(?=/\*)"
_SPLICE = re.compile(rb"(?:\\|\?\?/)\r?\n")
_DIRECTIVE = re.compile(
    rb"(?:^|\*/)"
    + _BLANKS
    + rb"(?:#|%:|\?\?=)(?:"
    + _GAP
    + rb"(?:include|include_next|import|embed)\b|"
    + _LOST
    + rb")",
    re.MULTILINE,
)
# `#ifdef __has_include` and `defined(__has_include)` ask about the compiler, not about a file.
_QUESTION = re.compile(
    rb"(?P<about>\bdefined[ \t]*(?:\([ \t]*)?|\bifn?def[ \t]+)?__has_(?:include|include_next|embed)\b[ \t]*\(?"
)
_OPERAND = re.compile(rb"[ \t]*(?:<(?P<angled>[^<>\"\n]+)>|\"(?P<quoted>[^<>\"\n]+)\")")
# Absolute, with a drive, or upwards.
_ANYWHERE = re.compile(rb"^[ \t]*[/\\]|[\\:]|\.\.")

#: Findings by digest of the source: a program asks for keys of the same few hundred sources over and over, and a scan
#: costs about as much as the rest of a key. 32 bytes and a reference each; emptied when full.
_seen: dict[bytes, Reads] = {}
_SEEN_LIMIT = 4096


def scan_source(code: bytes, digest: bytes) -> Reads:
    """Returns :func:`scan`, remembered under the digest of the code."""
    reads = _seen.get(digest)
    if reads is None:
        if len(_seen) >= _SEEN_LIMIT:
            _seen.clear()
        reads = _seen[digest] = scan(code)
    return reads


# The beginning of __has_include, to be pasted with its end.
_PASTED = re.compile(rb"__has_?i?n?c?l?u?d?\b")


def scan(code: bytes) -> Reads:
    """Returns what the code can make NVRTC read in addition to itself."""
    text = code
    if b"\\" in code or b"??/" in code:
        # Both texts: joined lines show a word that was cut in two, the original what joining pulled into a comment.
        text = code + b"\n" + _SPLICE.sub(b"", code)
    pasted = _PASTED.search(text) if b"##" in text or b"%:%:" in text else None
    if pasted is None and not any(word in text for word in (b"include", b"embed", b"import", b"__DATE__", b"__TIME")):
        return _NOTHING
    clock = clock_in(text)
    found = [_operand(text, match) for match in _DIRECTIVE.finditer(text)]
    found += [_operand(text, match) for match in _QUESTION.finditer(text) if not match["about"]]
    if pasted is not None:
        found.append(("file", f"{pasted[0].decode()} and a macro that pastes"))
    return Reads(
        clock.decode(),
        next((words for sort, words in found if sort == "file"), ""),
        next((words for sort, words in found if sort == "beside"), ""),
    )


def _operand(text: bytes, match: re.Match[bytes]) -> tuple[str, str]:
    """Returns where the file of this directive is searched, and the line for the message."""
    operand = _OPERAND.match(text, match.end())
    line = text[match.start() : match.start() + 200].strip().partition(b"\n")[0].decode(errors="replace")
    if operand is None:
        return "file", line
    name = operand["angled"] or operand["quoted"]
    if _ANYWHERE.search(name):
        return "file", line
    return ("beside" if operand["quoted"] else "bundled"), line
