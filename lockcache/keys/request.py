# SPDX-License-Identifier: Apache-2.0
"""The request of one call, checked: types, the known code and target types, and the pairs that can be compiled.

Keeps the rule that a wrong argument is an error that names it, never a key: cuda.core 1.2.2 takes ``extra_digest=5``
for five zero bytes, ``name_expressions="abc"`` for three names, and overlooks an ``include_path`` that is not a string.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from lockcache.keys.options import check_types
from lockcache.keys.paths import Headers

#: What ``cuda.core.Program(code, code_type).compile(target_type)`` supports.
_TARGETS = {
    "c++": ("ptx", "cubin", "ltoir"),
    "ptx": ("cubin", "ptx"),
    "nvvm": ("ptx", "ltoir"),
}
_TARGET_TYPES = ("ptx", "cubin", "ltoir")


class Request(NamedTuple):
    """One compilation to name. ``options`` is a ``cuda.core.ProgramOptions``; the rest are plain values."""

    code: bytes
    code_type: str
    options: Any
    target_type: str
    #: Sorted, and each still str or bytes.
    name_expressions: list[str | bytes]
    extra_digest: bytes | None
    #: The headers, where the caller has examined them; they are in the key then.
    headers: Headers | None = None


def coerce_request(
    code: object,
    code_type: object,
    options: object,
    target_type: object,
    name_expressions: object,
    extra_digest: object,
    headers: Headers | None = None,
) -> Request:
    """Returns the arguments of ``make_program_cache_key`` as a :class:`Request`. Raises TypeError and ValueError."""
    kind = _coerce_choice("code_type", code_type, tuple(_TARGETS))
    target = _coerce_choice("target_type", target_type, _TARGET_TYPES)
    if target not in _TARGETS[kind]:
        accepted = ", ".join(_TARGETS[kind])
        raise ValueError(f"target_type {target!r} cannot be compiled from code_type {kind!r}: accepted are {accepted}")
    _check_options(options)
    return Request(
        _coerce_code(code, kind),
        kind,
        options,
        target,
        _coerce_names(name_expressions),
        _coerce_extra_digest(extra_digest),
        headers,
    )


def _coerce_choice(argument: str, value: object, accepted: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(
            f"{argument} must be a str, one of {', '.join(accepted)}; got {type(value).__name__} {value!r:.80}"
        )
    lowered = value.lower()
    if lowered not in accepted:
        raise ValueError(f"{argument} must be one of {', '.join(accepted)} (in any case); got {value!r}")
    return lowered


def _check_options(options: Any) -> None:
    # A caller that holds a ProgramOptions has imported cuda.core: no need to import it to tell that something is not
    # one.
    core = sys.modules.get("cuda.core")
    if core is None or not isinstance(options, core.ProgramOptions):
        raise TypeError(f"options must be a cuda.core.ProgramOptions, got {type(options).__name__}")
    for field, accepted in (("arch", "a str such as 'sm_90'"), ("name", "a str or None")):
        value = getattr(options, field)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"options.{field} must be {accepted}, got {type(value).__name__} {value!r:.80}")
    check_types(options)


def _coerce_code(code: object, code_type: str) -> bytes:
    if isinstance(code, str):
        return _encode("code", code)
    if code_type == "nvvm" and isinstance(code, (bytes, bytearray)):
        return bytes(code)
    accepted = "str, bytes or bytearray" if code_type == "nvvm" else "a str"
    raise TypeError(f"code must be {accepted} for code_type {code_type!r}, got {type(code).__name__}")


def _encode(argument: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument} cannot be written as UTF-8, which the compilers read: {error}") from error


def _coerce_names(names: object) -> list[str | bytes]:
    # An empty tuple is nearly every call.
    if names == ():
        return []
    # A str is an iterable of str: "abc" would be three names, and nobody means that.
    if isinstance(names, (str, bytes, bytearray, memoryview)) or not isinstance(names, Iterable):
        raise TypeError(f"name_expressions must be an iterable of str or bytes; got {type(names).__name__} {names!r}")
    ordered: list[tuple[int, bytes, str | bytes]] = []
    for index, name in enumerate(names):
        argument = f"name_expressions[{index}]"
        if isinstance(name, str):
            ordered.append((0, _encode(argument, name), name))
        elif isinstance(name, bytes):
            ordered.append((1, name, name))
        else:
            raise TypeError(f"{argument} must be a str or bytes, got {type(name).__name__} {name!r:.80}")
    return [name for _, _, name in sorted(ordered, key=lambda each: each[:2])]


def _coerce_extra_digest(extra: object) -> bytes | None:
    if extra is None or type(extra) is bytes:
        return extra
    if isinstance(extra, (bytes, bytearray, memoryview)):
        return bytes(extra)
    raise TypeError(f"extra_digest must be bytes, bytearray, memoryview or None, got {type(extra).__name__} {extra!r}")
