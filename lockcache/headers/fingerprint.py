# SPDX-License-Identifier: Apache-2.0
"""The headers that a source can reach and their digest: what callers call.

Keeps invariant 1 (a hit is whole) for programs with headers: as ``extra_digest`` of a key, it makes any changed, added,
removed or newly shadowing header a miss. Relied on by :mod:`lockcache.cuda`. Imports nothing of CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lockcache.explain import remember_digest
from lockcache.headers.closure import Closure, Request
from lockcache.headers.closure_cache import closure_of
from lockcache.headers.saved import ClosureStore
from lockcache.headers.source import scan_remembered

# By NVRTC, from the end of a path.
_STRIPPED = " \t\n\r\v\f"
_OR_MORE = ", or a sequence of these"

if TYPE_CHECKING:
    _Path = str | os.PathLike[str]
    _Macro = str | tuple[str, str]


def fingerprint(
    code: str | bytes | bytearray,
    include_path: _Path | Sequence[_Path] | None = (),
    pre_include: _Path | Sequence[_Path] | None = (),
    *,
    name: str | None = None,
    define_macro: _Macro | Sequence[_Macro] | None = (),
    no_source_include: bool | None = False,
) -> bytes:
    """Digest of all files that NVRTC may read to compile ``code``: 32 bytes, for ``extra_digest``.

    The arguments are those of ``cuda.core.ProgramOptions``, with :class:`os.PathLike` as well as str. With
    ``use_bundled_headers``, cuda.core has NVRTC search the directory in which NVRTC installed its headers, and ``cccl``
    in it, before ``include_path``: put both in front.

    Two calls give the same digest if every name leads to the same content, found at the same place of the search
    order. It does not depend on where directories lie, on links, on times, nor on ``code`` beyond what that includes:
    code, options and paths as they are spelled are the key's. So are debug and line information, which hold paths.

    A change between this call and the compilation is not seen: call again afterwards, which is cheap, and keep what was
    compiled only if the digest is the same. A call made before costs one ``stat`` for each file; files changed in the
    last two seconds are read again. ``#include MACRO`` makes every file below the searched directories count, and logs
    a warning.

    Raises TypeError for a wrong type; UncacheableError (a ValueError) for code or headers with ``__DATE__``,
    ``__TIME__`` or ``__TIMESTAMP__``, for a header of more than 64 MiB, and for a computed name that may lead to too
    many files or anywhere; OSError naming the file for one that cannot be read, and for one in /proc or /sys, which is
    not read. A file that is not there is no error: the compiler will say so.
    """
    return examine(
        code, include_path, pre_include, name=name, define_macro=define_macro, no_source_include=no_source_include
    ).placed


def examine(
    code: str | bytes | bytearray,
    include_path: _Path | Sequence[_Path] | None = (),
    pre_include: _Path | Sequence[_Path] | None = (),
    *,
    name: str | None = None,
    define_macro: _Macro | Sequence[_Macro] | None = (),
    no_source_include: bool | None = False,
    store: ClosureStore | None = None,
) -> Closure:
    """Returns the closure whose ``placed`` :func:`fingerprint` is, and what its files do with their paths.

    ``store`` has those that other processes saved, and gets this one.
    """
    called = _coerce_name(name)
    text = _definitions(define_macro) + _coerce_code(code)
    working = _working_directory()
    closure = closure_of(
        Request(
            scan_remembered(text),
            called,
            os.path.dirname(os.path.join(working, os.fsencode(called))),
            working,
            # join leaves an absolute path alone; an empty one is the working directory, to NVRTC too.
            tuple(os.path.join(working, path) for path in _coerce_paths("include_path", include_path)),
            _coerce_paths("pre_include", pre_include),
            not no_source_include,
        ),
        store,
    )
    # For the keys that one of them goes into.
    remember_digest(closure.digest, closure.parts)
    remember_digest(closure.placed, closure.parts)
    return closure


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return b""  # removed: relative names lead nowhere, for NVRTC as for us


def _coerce_code(code: object) -> bytes:
    if isinstance(code, str):
        return code.encode(errors="surrogatepass")
    if isinstance(code, (bytes, bytearray)):
        return bytes(code)
    raise TypeError(f"code must be a str, bytes or bytearray, got {type(code).__name__}")


def _coerce_name(name: object) -> str:
    if name is None:
        return "default_program"
    if not isinstance(name, str):
        raise TypeError(f"name must be a str or None, got {type(name).__name__} {name!r}")
    _encode_path("name", name)
    return name


def _coerce_paths(argument: str, value: object) -> tuple[bytes, ...]:
    if value is None:
        return ()
    if isinstance(value, (str, os.PathLike)):
        return (_coerce_path(argument, value),)
    # bytes are a sequence, of numbers.
    if isinstance(value, (bytes, bytearray)) or not isinstance(value, Sequence):
        raise _wrong(argument, value)
    return tuple(_coerce_path(f"{argument}[{index}]", item, "") for index, item in enumerate(value))


def _coerce_path(argument: str, item: object, or_more: str = _OR_MORE) -> bytes:
    path = os.fspath(item) if isinstance(item, os.PathLike) else item
    if not isinstance(path, str):
        raise _wrong(argument, item, or_more)
    return _encode_path(argument, path)


def _encode_path(argument: str, path: str) -> bytes:
    if "\0" in path:
        raise ValueError(f"{argument} must not contain NUL, got {path!r:.80}")
    try:
        return os.fsencode(path.rstrip(_STRIPPED))
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument} must be what a path can be, got {path!r:.80}: {error}") from error


def _wrong(argument: str, value: object, or_more: str = _OR_MORE) -> TypeError:
    accepted = f"a str or an os.PathLike of str{or_more}"
    return TypeError(f"{argument} must be {accepted}; got {type(value).__name__} {value!r:.80}")


def _definitions(value: object) -> bytes:
    """Returns macros as the lines that define them: their bodies can be included, and can ask for files."""
    if value is None:
        return b""
    # Two line ends: a body may end in a backslash.
    return "".join(f"#define {macro} {body}\n\n" for macro, body in _macros(value)).encode(errors="surrogatepass")


def _macros(value: object, argument: str = "define_macro") -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        macro, _, body = value.partition("=")
        return [(macro, body)]
    # As cuda.core reads it: a tuple of two str is a name and its value, a list of two is two macros.
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(item, str) for item in value):
        return [value]
    if isinstance(value, tuple) or (isinstance(value, list) and argument == "define_macro"):
        items = [_macros(item, f"{argument}[{index}]") for index, item in enumerate(value)]
        return [macro for macros in items for macro in macros]
    accepted = "a str, a (name, value) tuple of str, or a list of these"
    raise TypeError(f"{argument} must be {accepted}; got {type(value).__name__} {value!r:.80}")
