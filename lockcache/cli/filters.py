"""The filters of ``ls`` and ``evict``: ``--kind``, ``--arch``, ``--compiler``, ``--older-than``.

Decides how they are written. What they mean is :class:`lockcache.filestream.eviction.select.Selection`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from lockcache.cli import options
from lockcache.filestream.eviction import UNKNOWN
from lockcache.lowlevel import Selection

__all__ = ["FILTERS_IN_WORDS", "filters", "parse_arch", "selection_of"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: For ``--help``.
FILTERS_IN_WORDS: Final = """\
Filters take a name or a pattern such as 'sm_7*'; several must all hold. What is not known of an entry is 'unknown':
cuda.core's own cache records nothing, and not all code tells by itself."""

_ARCH: Final = re.compile(r"(?:sm_?)?([0-9]{2,4}[af]?)", re.IGNORECASE | re.ASCII)
_PATTERN: Final = re.compile(r"sm_.*[*?\[].*|[*?]+|unknown", re.IGNORECASE | re.ASCII)


def filters(command: _F) -> _F:
    """The four options, given as ``kind``, ``arch``, ``compiler`` and ``older_than``."""
    for option in (
        click.option(
            "--older-than",
            metavar="DURATION",
            callback=options.duration,
            help="Only entries that nobody used for so long: 30d, 12h.",
        ),
        click.option(
            "--compiler",
            metavar="NAME",
            callback=options.by(_parse_pattern),
            help="Only of this compiler: 13.5, 'nvrtc 12.*', cuda.",
        ),
        click.option(
            "--arch",
            metavar="ARCH",
            callback=options.by(parse_arch),
            help="Only for this architecture: sm_90, 'sm_7*'.",
        ),
        click.option(
            "--kind",
            metavar="KIND",
            callback=options.by(_parse_pattern),
            shell_complete=lambda ctx, param, text: [kind for kind in _KINDS if kind.startswith(text)],
            help="Only of this kind: cubin, ptx, ltoir, fatbin.",
        ),
    ):
        command = option(command)
    return command


_KINDS: Final = ("cubin", "ptx", "ltoir", "fatbin", "llvm-bitcode", "elf", UNKNOWN)


def selection_of(kind: str | None, arch: str | None, compiler: str | None, older_than: float | None) -> Selection:
    """What those options ask for."""
    return Selection(kind, arch, compiler, older_than)


def parse_arch(text: str) -> str:
    """An architecture as entries name it, or a pattern. Raises :class:`ValueError` naming ``text``."""
    plain = _ARCH.fullmatch(text.strip())
    if plain is not None:
        return f"sm_{plain[1].lower()}"
    if _PATTERN.fullmatch(text.strip()) is None:
        raise ValueError(
            f"{text!r} is not an architecture; accepted: sm_90, sm_100a, a pattern such as 'sm_7*', unknown"
        )
    return text.strip().lower()


def _parse_pattern(text: str) -> str:
    if not text.strip():
        raise ValueError(f"{text!r} is empty; accepted: a name, or a pattern such as 'nvrtc 12.*'")
    return text.strip()
