# SPDX-License-Identifier: Apache-2.0
"""The filters of ``ls``, ``pack`` and ``evict``: ``--kind``, ``--arch``, ``--compiler``, ``--label``,
``--namespace`` and times of use.

Decides how they are written. What they mean is :class:`lockcache.lowlevel.Selection`'s.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.filestream.inspect import UNKNOWN
from lockcache.lowlevel import Selection

#: For ``--help``.
FILTERS_IN_WORDS: Final = """\
A filter takes a name or a pattern such as 'sm_7*'. If a filter is given twice, either value matches; different
filters must all match. A value that an entry does not state is 'unknown': cuda.core's own cache records none, and not
all code contains them. A name that no entry has is an error."""

_ARCH: Final = re.compile(r"(?:sm_?)?([0-9]{2,4}[af]?)", re.IGNORECASE | re.ASCII)
_PATTERN: Final = re.compile(r"sm_.*[*?\[].*|[*?]+|unknown", re.IGNORECASE | re.ASCII)


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the options, collected as ``selection: Selection``."""

    @functools.wraps(command)
    def selecting(*arguments: Any, older_than: float | None, newer_than: float | None, **given: Any) -> Any:
        patterns = {name: given.pop(name) for name in _PATTERNS}
        selection = Selection(**patterns, unused_seconds=older_than, used_seconds=newer_than)
        return command(*arguments, selection=selection, **given)

    decorated: Callable[..., Any] = selecting
    for option in (
        click.option(
            "--newer-than",
            metavar="DURATION",
            callback=options.duration,
            help="Only entries that were used within this time: 30d, 12h.",
        ),
        click.option(
            "--older-than",
            metavar="DURATION",
            callback=options.duration,
            help="Only entries that were not used for this time: 30d, 12h.",
        ),
        *(
            click.option(
                f"--{name}",
                metavar=name.upper(),
                multiple=True,
                callback=options.each(parse),
                shell_complete=_completing(name),
                help=words,
            )
            for name, (parse, words) in reversed(_PATTERNS.items())
        ),
    ):
        decorated = option(decorated)
    return decorated


_KINDS: Final = ("cubin", "ptx", "ltoir", "fatbin", "llvm-bitcode", "elf", UNKNOWN)


def _completing(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    known = _KINDS if name == "kind" else ()
    return lambda context, parameter, text: [kind for kind in known if kind.startswith(text)]


def parse_arch(text: str) -> str:
    """Returns an architecture as entries name it, or a pattern. Raises :class:`ValueError` naming ``text``."""
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
    return " ".join(text.split())


# Each filter with the parser of its value.
_PATTERNS: Final[dict[str, tuple[Callable[[str], str], str]]] = {
    "kind": (_parse_pattern, "Only of this kind: cubin, ptx, ltoir, fatbin."),
    "arch": (parse_arch, "Only for this architecture: sm_90, 'sm_7*'."),
    "compiler": (_parse_pattern, "Only of this compiler: 13.5, 'nvrtc 12.*', cuda."),
    "label": (_parse_pattern, "Only kernels of this name: my_kernel, 'gemm*'."),
    "namespace": (_parse_pattern, "Only what these stored: triton, jax."),
}
