# SPDX-License-Identifier: Apache-2.0
"""Paths in keys: decides for one compilation by NVRTC whether the paths of its headers can reach the output.

Keeps the promise that a key holds no path that cannot reach the output. The content of all headers is in the key by
their digest; where they lie matters only if the output can tell it, and :func:`reach_of_paths` is the one place that
says so. Found with the real NVRTC 13.5 by moving headers (``lockcache-stress keys --moves``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from lockcache.headers import PathUse


class Headers(NamedTuple):
    """What is known of the headers of a program: :func:`lockcache.headers.examine` finds it."""

    #: Of what the compiler sees of them.
    digest: bytes
    #: Also of where in the search order they were found, for keys with paths.
    placed: bytes
    #: What the source and its headers do with paths.
    paths: PathUse
    #: Whether anything beyond the source is read.
    has_files: bool


class Reach(Enum):
    """How paths of headers reach the output."""

    #: Not at all: the key has none.
    NONE = "none"
    #: As they are spelled, or not at all: which of the two, the output says.
    PRINTED = "printed"
    #: In a form that the output need not show: the key has them.
    ANY = "any"


def reach_of_paths(options: Any, target_type: str, headers: Headers | None) -> Reach:
    """Returns how paths of headers can reach the output of this compilation.

    ``headers=None``: the program includes nothing but what NVRTC brings along.
    """
    if _takers(options, target_type, headers):
        return Reach.ANY
    is_printed = headers is not None and headers.paths & (PathUse.PRINTED | PathUse.PASTES)
    return Reach.PRINTED if is_printed else Reach.NONE


def _takers(options: Any, target_type: str, headers: Headers | None) -> list[str]:
    """Returns what takes paths of headers into the output in a form that it need not show, in words."""
    found = [name for name in ("debug", "lineinfo") if getattr(options, name)]  # the command line is in there, too
    if headers is None:
        return found
    if headers.has_files and options.link_time_optimization:
        found.append("link_time_optimization")
    if headers.has_files and target_type == "ltoir":
        found.append("LTO-IR")
    if PathUse.USED in headers.paths:
        found.append("__FILE__ or the like in a text")
    elif (PathUse.PASTES | PathUse.PIECES) in headers.paths:
        found.append("a word that is pasted together")
    return found


def why_paths(options: Any, target_type: str, headers: Headers | None, *, is_vouched: bool) -> list[str]:
    """Returns what takes paths of headers into a key that has some, in words: options by cuda.core's names.

    ``is_vouched``: by an ``extra_digest``, with which no text is examined.
    """
    found = _takers(options, target_type, headers)
    if is_vouched:
        return [*found, "extra_digest"]
    return found or ["a path that the output prints" if headers is not None else "headers that were not examined"]


_BUNDLED: Final = b"--use-bundled-headers"
_OPTIONS: Final = (b"--include-path=", b"--pre-include=", _BUNDLED + b"=")


def without_paths(rendered: list[bytes]) -> list[bytes]:
    """Returns NVRTC's options without those that only say where headers lie."""
    kept = [option for option in rendered if not option.startswith(_OPTIONS)]
    # That there are bundled headers is part of the search for all others.
    return [*kept, _BUNDLED] if len(kept) < len(rendered) and _has_bundled(rendered) else kept


def _has_bundled(rendered: list[bytes]) -> bool:
    return any(option.startswith(_BUNDLED) for option in rendered)


def spelled_paths(rendered: list[bytes]) -> list[bytes]:
    """Returns the beginnings of the headers' paths as NVRTC prints them, which is as its options spell them."""
    found = [option.rstrip().partition(b"=") for option in rendered if option.startswith(_OPTIONS)]
    return [path if option == b"--pre-include" or path.endswith(b"/") else path + b"/" for option, _, path in found]


def prints_one(code: bytes, target_type: str, spelled: Iterable[bytes]) -> bool:
    """Returns whether compiled code holds one of the paths as a text."""
    if any(path in code for path in spelled):
        return True
    # A text is an array of numbers in PTX, except in a pragma.
    return target_type == "ptx" and any(", ".join(map(str, path)).encode() in code for path in spelled)
