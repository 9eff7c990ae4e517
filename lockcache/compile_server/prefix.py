# SPDX-License-Identifier: Apache-2.0
"""Requests: what is to be compiled, and the prefix that it has in common with others.

Decides which compilations a precompiled header may serve. Its bytes are those of an ordinary compilation if the text
that was compiled before begins the source, and all that decides the output besides is the same. So a prefix is that
text with the compiler's build, the options, the name of the source, the working directory and the variables. The files
behind the includes are not in it: a holder ends when one changes.
"""

from __future__ import annotations

import hashlib
import os
import re
from enum import Enum
from typing import Any, Final, NamedTuple

from lockcache.arguments import coerce_choice, warn_once

_VARIABLE: Final = "LOCKCACHE_COMPILE_SERVER"
_MOST_HEAD_CHARACTERS: Final = 65_536
_TEXTS: Final = ("library", "build", "name", "target", "head", "identity")


class Mode(Enum):
    """Which programs are compiled by the server."""

    #: None.
    OFF = "off"
    #: Those with includes, from the second program of a prefix on.
    AUTO = "auto"
    #: All with includes.
    ON = "on"


class Target(Enum):
    """What NVRTC makes of a program."""

    PTX = "ptx"
    CUBIN = "cubin"
    LTOIR = "ltoir"


def configured_mode() -> Mode:
    """Returns what ``$LOCKCACHE_COMPILE_SERVER`` says; off where it is not set. A mistake is off, with a warning."""
    try:
        found = coerce_choice(_VARIABLE, tuple(mode.value for mode in Mode))
    except ValueError as error:
        warn_once(f"{error}; no compile server is used")
        return Mode.OFF
    return Mode(found) if found else Mode.OFF


class Request(NamedTuple):
    """All that decides the output of a compilation but its source and names."""

    #: The file of NVRTC, and its version with its build as :mod:`lockcache.keys` knows it.
    library: str
    build: str
    #: The options as NVRTC gets them.
    options: tuple[str, ...]
    name: str
    target: str
    #: The first includes.
    head: str
    #: The working directory, and what ``$PWD`` calls it.
    directories: tuple[str, ...]
    #: Which directory that is: :func:`identity_here`. Another may get its name.
    identity: str
    #: The variables that NVRTC reads: names and values.
    variables: tuple[tuple[str, str], ...]

    @property
    def prefix(self) -> str:
        """The name of the prefix: equal for requests that one holder serves."""
        text = repr(tuple(self)).encode(errors="surrogatepass")
        return hashlib.sha256(text, usedforsecurity=False).hexdigest()

    @classmethod
    def parse(cls, found: dict[str, Any]) -> Request:
        """Returns the request of a message. Raises :class:`ValueError` for anything else."""
        try:
            texts: dict[str, Any] = {name: found[name] for name in _TEXTS}
            lists: dict[str, Any] = {name: tuple(found[name]) for name in ("options", "directories")}
            variables = tuple((name, value) for name, value in found["variables"])
            request = cls(variables=variables, **texts, **lists)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a request without {error}") from None
        every = [*texts.values(), *(each for found in lists.values() for each in found), *sum(variables, ())]
        if not all(isinstance(text, str) and "\0" not in text for text in every):
            raise ValueError("a request with something that is not text")
        Target(request.target)
        return request


def identity_here() -> str:
    """Returns device and inode of the working directory. Raises :class:`OSError`."""
    status = os.stat(".")
    return f"{status.st_dev}:{status.st_ino}"


_BLANK: Final = r"(?:[ \t\r]*(?://[^\n\\]*|/\*(?:[^*]|\*(?!/))*\*/[ \t\r]*)?\n)"
# Names, numbers and spaces alone: nothing that goes on in the next line, or that asks for a place in the file.
_DEFINE: Final = r"[ \t]*\#[ \t]*(?:define[ \t]+\w+(?:[ \t]+[\w.+-]+)?|undef[ \t]+\w+)[ \t\r]*\n"
_INCLUDE: Final = r'[ \t]*\#[ \t]*include[ \t]*(?:<[^>\n"\\]+>|"[^"\n\\]+")[ \t\r]*\n'
_HEAD: Final = re.compile(rf"(?:(?:{_BLANK}|{_DEFINE})*{_INCLUDE})*", re.ASCII)
_PLACE: Final = re.compile(r"__(?:COUNTER|LINE|FILE|DATE|TIME|TIMESTAMP|BASE_FILE)__")


def head_of(source: str) -> str:
    """Returns the first lines of a source up to the last include of them; empty if nothing can be compiled once.

    Only includes, plain macros, comments and empty lines may stand there: what a conditional or a pragma does to a
    precompiled header is not for this module to know.
    """
    if "#" not in source[:_MOST_HEAD_CHARACTERS] or "include" not in source:
        return ""
    found = _HEAD.match(source[:_MOST_HEAD_CHARACTERS])
    head = found.group() if found is not None else ""
    return "" if _PLACE.search(head) else head
