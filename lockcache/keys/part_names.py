# SPDX-License-Identifier: Apache-2.0
"""Parts of a key, named for people from the description that the key is the hash of.

Keeps the promise that the parts identify what a key was made of without revealing it: each value of a description
becomes one or more parts (:mod:`lockcache.explain`), each option, macro, variable and header one of its own. Whatever
changes the key changes a part; the source itself is only ever hashed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from lockcache.explain import Part, make_part, name_path_taker, parts_of_digest
from lockcache.keys import hashing, versions

# Parts of which there may be many come last: the last parts are left out if there is no room.
_MANY: Final = ("options", "objects", "modules", "headers", "extra digest")
# A macro may hold a statement: only what is one word is shown.
_WORD: Final = re.compile(r"[\w.+-]{0,32}", re.ASCII)
_MACRO: Final = ("define ", "undefine ")
_FLAGS_OF_MACROS: Final = {"define-macro": "define", "undefine-macro": "undefine"}
_FLAGS_OF_PATHS: Final = {"include-path": "include path", "pre-include": "pre-include"}


def name_parts(description: Mapping[str, Any], path_takers: Iterable[str] = ()) -> Iterator[Part]:
    """Returns the parts of a key, the most important first.

    ``path_takers``: what takes paths of headers into the key, which follows from other parts.
    """
    for taker in path_takers:
        yield name_path_taker(taker)
    for name, value in sorted(description.items(), key=lambda item: item[0] in _MANY):
        yield from _NAMED.get(name, _plain)(name, value)


def _plain(name: str, value: Any) -> Iterator[Part]:
    if value is not None and value != []:
        yield _part(name, value)


def _part(name: str, value: Any) -> Part:
    return make_part(name, hashing.encode(value), _shown(value))


def _hidden(name: str, value: Any) -> Iterator[Part]:
    yield make_part(name, hashing.encode(value))


def _hidden_if_any(name: str, value: bytes | None) -> Iterator[Part]:
    return iter(()) if value is None else _hidden(name, value)


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(item) for item in value)
    return str(value)


def _compiler(name: str, value: bytes) -> Iterator[Part]:
    yield make_part(name, value, versions.in_words(value))


def _options(name: str, value: Any) -> Iterator[Part]:
    """Yields each option, under the name that the compiler knows it by; a repeated one with all of its values."""
    if isinstance(value, Mapping):
        for option, given in value.items():
            yield from _options(name, given) if isinstance(given, Mapping) else _plain(f"option {option}", given)
        return
    options = [_option(rendered.decode(errors="surrogateescape")) for rendered in value]
    texts: dict[str, list[str]] = {}
    for option, text in options:
        texts.setdefault(option, []).append(text)
    # In the compiler's order: the first ones are those that everyone sets.
    for option, given in texts.items():
        is_shown = not option.startswith(_MACRO) or all(map(_WORD.fullmatch, given))
        yield make_part(option, _bytes(given), ", ".join(given) or "on" if is_shown else "")
    # The second of two macros may undo the first.
    yield make_part("order of options", _bytes([option for option, _ in options]))


def _option(rendered: str) -> tuple[str, str]:
    flag, _, text = rendered.lstrip("-").partition("=")
    if flag in _FLAGS_OF_MACROS:
        macro, _, text = text.partition("=")
        return f"{_FLAGS_OF_MACROS[flag]} {macro}", text
    return _FLAGS_OF_PATHS.get(flag, f"option {flag}"), text


def _bytes(texts: list[str]) -> bytes:
    return repr(texts).encode(errors="surrogateescape")


def _each(what: str) -> Callable[[str, Any], Iterator[Part]]:
    def parts(name: str, value: Iterable[Any]) -> Iterator[Part]:
        yield from (_part(f"{what} {each_name}", each) for each_name, each in value)

    return parts


def _modules(name: str, value: list[Any]) -> Iterator[Part]:
    for module, source in value:
        yield make_part(f"module {module}", source)
    yield make_part("order of modules", _bytes([module for module, _ in value]))


def _objects(name: str, value: list[Any]) -> Iterator[Part]:
    """Yields each object code that is linked, by its place: their order is part of them."""
    for number, (kind, digest) in enumerate(value, 1):
        yield make_part(f"object {number}", hashing.encode([kind, digest]), kind)


def _digest(name: str, value: bytes | None) -> Iterator[Part]:
    if value is None:
        return
    headers = parts_of_digest(value)
    yield make_part("headers" if headers else name, value)
    yield from headers


_NAMED: Final[dict[str, Callable[[str, Any], Iterator[Part]]]] = {
    "code": _hidden,
    "compiler": _compiler,
    "options": _options,
    "newer options": _each("option"),
    "variables": _each("variable"),
    "modules": _modules,
    "objects": _objects,
    "libdevice": _hidden_if_any,
    "headers": _digest,
    "extra digest": _digest,
}
