# SPDX-License-Identifier: Apache-2.0
"""Parts of a cache key as they are kept: a name, a short hash, and a value where that may be shown.

Keeps two promises for everyone who may read an entry. A value is shown only if it is one line of plain words, its name
does not look like a secret's, and it has not the form of one; of anything else, source code above all, the hash is
kept. And all parts of a key
take :data:`MOST_BYTES` at most: first long values are cut, then the last values go, then the last parts become one
(:data:`OTHERS`).

Not promised: that a hash of 32 bits tells every two contents apart.

The differences of two keys are the parts that changed, without those that changed only because of another one: line
information takes the working directory into a key, and a changed header also changes the digest of all headers. The
cause is named, and the consequence is not. So is a framework's whole key (:data:`REST`) only named where its adapter
cannot state the part that changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from xxhash import xxh3_64_hexdigest

from lockcache.explain.secret_forms import SECRET_NAME, holds_secret

#: The most bytes that the parts of one key take, as written. A record and its parts together fit into ext4's block.
MOST_BYTES: Final = 1024
#: The part that stands for those for which there is no room.
OTHERS: Final = "others"

#: The part that says which framework's key this is. It comes first, and only keys of one framework are compared.
FRAMEWORK: Final = "framework"
#: The part for a framework's whole key: named where no other part differs.
REST: Final = "rest of the key"

_HASH_DIGITS: Final = 8
#: The lengths of values that are tried one after the other.
_LONGEST_VALUES: Final = (64, 24)
_LONGEST_LABEL: Final = 120
# Parts in a note that others may have written: no more are looked at.
_MOST_PARTS: Final = 64

# Options, versions, paths, template arguments. Not what a macro's body of code holds: brackets, quotes, semicolons.
_SHOWABLE: Final = re.compile(r"[\w .,:=+*&<>/@%~-]*", re.ASCII)
_NAME: Final = re.compile(r"[\w .,:=+*&<>/@%~()-]{1,60}", re.ASCII)
_SECRET: Final = re.compile(SECRET_NAME, re.IGNORECASE)


def looks_secret(text: str) -> bool:
    """Returns whether a name looks like a secret's, so that its value is not shown."""
    return _SECRET.search(text) is not None


class Part(NamedTuple):
    """One part of a key."""

    name: str
    #: The hash of its content, 8 hex digits.
    hash: str
    #: To be shown; empty where it may not be or is not known.
    value: str = ""


def make_part(name: str, content: bytes, value: str = "") -> Part:
    """Returns the part of this content. ``value`` is left out unless it may be shown, and a strange name shortened."""
    is_shown = _SHOWABLE.fullmatch(value) is not None and not (looks_secret(name) or holds_secret(value))
    if _NAME.fullmatch(name) is None or holds_secret(name):
        kind = name.partition(" ")[0]
        name = f"{'part' if holds_secret(kind) else kind[:20]} {_hash(name.encode(errors='surrogateescape'))}"
    return Part(name, _hash(content), _cut(value, _LONGEST_VALUES[0]) if is_shown else "")


def bounded(parts: Iterable[Part]) -> list[Part]:
    """Returns the parts in so few bytes that :data:`MOST_BYTES` hold them. The most important ones come first."""
    kept = list(parts)
    for longest in _LONGEST_VALUES:
        kept = [part._replace(value=_cut(part.value, longest)) for part in kept]
        if _size(kept) <= MOST_BYTES and len(kept) <= _MOST_PARTS:
            return kept
    kept = _without_last_values(kept)
    if _size(kept) <= MOST_BYTES and len(kept) <= _MOST_PARTS:
        return kept
    size = _size([_others(kept)])
    for index, part in enumerate(kept):
        size += _size([part])
        if size > MOST_BYTES or index == _MOST_PARTS - 1:
            return [*kept[:index], _others(kept[index:])]
    return kept


def _without_last_values(parts: list[Part]) -> list[Part]:
    """Returns the parts without the last values, of which there is no room for more."""
    kept, over = list(parts), _size(parts) - MOST_BYTES
    for index in reversed(range(len(kept))):
        if over <= 0:
            break
        over -= len(json.dumps(kept[index].value)) - len('""')
        kept[index] = kept[index]._replace(value="")
    return kept


def decode_parts(value: Any) -> tuple[Part, ...]:
    """Returns the parts that an entry states; none for what no writer wrote."""
    if not isinstance(value, list):
        return ()
    return tuple(
        Part(*(text[: MOST_BYTES // 8] for text in item))
        for item in value[:_MOST_PARTS]
        if isinstance(item, list) and 2 <= len(item) <= 3 and all(isinstance(text, str) for text in item)
    )


def decode_label(value: Any) -> str:
    """Returns the label that an entry or a program states, as one short line; empty for anything else."""
    return " ".join(value[:_LONGEST_LABEL].split()) if isinstance(value, str) else ""


def _hash(content: bytes) -> str:
    return xxh3_64_hexdigest(content)[:_HASH_DIGITS]


def _cut(value: str, longest: int) -> str:
    """Returns the beginning of a value; of a path its end, which is what differs."""
    if len(value) <= longest:
        return value
    kept = longest - len("...")
    return "..." + value[-kept:] if value.startswith("/") else value[:kept] + "..."


def _size(parts: list[Part]) -> int:
    return len(json.dumps(parts, separators=(",", ":")))


def _others(parts: list[Part]) -> Part:
    """Returns one part for several. Its value states their number: it equals only a part for as many."""
    return make_part(OTHERS, json.dumps([part[:2] for part in parts]).encode(), f"{len(parts)} more")


#: A part whose name begins with the key changes with any of the parts listed for it, which are named in its place.
_CONSEQUENCES: Final = {
    "order of options": ("option ", "define ", "undefine ", "include path", "pre-include"),
    "order of modules": ("module ",),
    "other options": ("option ",),
    "compile options": ("option ",),
    "functions and globals": ("code",),
    "headers": ("header ",),
}
#: The part for the directory that the compiler runs in.
WORKING_DIRECTORY: Final = "working directory"
#: The options that take the working directory into a key, as cuda.core hands them to NVRTC, and their names there.
_NEED_DIRECTORY: Final = {
    "option device-debug": "debug",
    "option generate-line-info": "lineinfo",
    "option dlink-time-opt": "link_time_optimization",
}
_LTO_IR: Final = "LTO-IR"
#: The same for parts that one of the two keys lacks: these are in a key only if an option or the target wants them.
_ON_DEMAND: Final = {
    WORKING_DIRECTORY: (*_NEED_DIRECTORY, "target"),
    "variable ": ("target",),
}


#: The parts that hold paths of headers. They are in a key only if something takes the paths into the output.
_PATHS: Final = ("include path", "pre-include", "option use-bundled-headers")
#: A part whose name begins so says what that is. It follows from the other parts, so it is never a difference.
_PATHS_BY: Final = "paths by "


def name_path_taker(taker: str) -> Part:
    """Returns the part that says what takes paths of headers into a key. In its name, which is kept whole."""
    return make_part(_PATHS_BY + taker, b"")


def _path_takers(parts: Iterable[Part]) -> list[str]:
    return [part.name.removeprefix(_PATHS_BY) for part in parts if part.name.startswith(_PATHS_BY)]


def _directory_takers(parts: Iterable[Part]) -> list[str]:
    names = {part.name for part in parts}
    return [option for part, option in _NEED_DIRECTORY.items() if part in names] or [_LTO_IR]


def reasons_of(name: str, parts: Iterable[Part]) -> list[str]:
    """Returns what takes a part of this name into a key with these parts: options by cuda.core's names, or in words.

    Only for the working directory and the paths of headers, which most keys do not have, and if the parts tell it.
    """
    if name == WORKING_DIRECTORY:
        return _directory_takers(parts)
    return _path_takers(parts) if name in _PATHS else []


class Difference(NamedTuple):
    """One part that differs; ``None`` where a key has no such part."""

    name: str
    mine: Part | None
    other: Part | None


def differences(mine: Iterable[Part], other: Iterable[Part]) -> list[Difference]:
    """Returns the parts in which two keys differ, in the order of ``mine``. Empty: none that is kept."""
    by_name, others = {part.name: part for part in mine}, {part.name: part for part in other}
    found = []
    for name in [*by_name, *(name for name in others if name not in by_name)]:
        if name.startswith(_PATHS_BY):
            continue
        one, another = by_name.get(name), others.get(name)
        if one and another and one.hash == another.hash:
            continue
        has, lacks = (by_name, others) if another is None else (others, by_name)
        if not (one and another) and _may_be_cut(name, has, lacks):
            continue
        found.append(Difference(name, one, another))
    causes = _causes_of_paths(by_name.values(), others.values())
    return [each for each in found if not _follows(each, found, causes)]


def values_in_words(difference: Difference) -> str:
    """Returns the two values of a part that differs, for people."""
    mine, other = difference.mine, difference.other
    # Equal where neither is shown, or only where both are the same.
    if mine is not None and other is not None and mine.value == other.value:
        return "changed"
    return f"{_value(mine)} / {_value(other)}"


def _value(part: Part | None) -> str:
    if part is None:
        return "not there"
    return part.value or f"(hash {part.hash})"


def _may_be_cut(name: str, has: Mapping[str, Part], lacks: Mapping[str, Part]) -> bool:
    """Returns whether a part that one key has may be among the :data:`OTHERS` of the key that lacks it.

    All keys have their parts in one order, and the last parts are cut. So a part is not among the others if a later one
    was kept. The order within a kind, such as macros and headers, is each program's own, and says nothing.
    """
    if name == OTHERS or OTHERS not in lacks:
        return False
    names = list(has)
    later = names[names.index(name) + 1 :]
    return not any(each in lacks and each != OTHERS and _kind(each) != _kind(name) for each in later)


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _causes_of_paths(mine: Iterable[Part], other: Iterable[Part]) -> set[str]:
    """Returns the parts which, if all of them differ, explain that one of two keys has paths of headers.

    Empty where both have paths, or none has.
    """
    one, another = _path_takers(mine), _path_takers(other)
    if one and another:
        return set()
    parts = {taker: part for part, taker in _NEED_DIRECTORY.items()} | {_LTO_IR: "target"}
    return {parts.get(taker, taker) for taker in one or another}


def _follows(difference: Difference, found: list[Difference], causes_of_paths: set[str]) -> bool:
    name = difference.name
    if name == REST:
        return len(found) > 1
    if name == OTHERS:
        is_comparable = bool(difference.mine and difference.other and difference.mine.value == difference.other.value)
        return any(each.name not in (OTHERS, REST) for each in found) and not is_comparable
    if name in _PATHS:
        return bool(causes_of_paths) and causes_of_paths <= {each.name for each in found}
    if name == "headers" and causes_of_paths:
        return len(found) > 1  # with paths it is the digest of their places too; a changed header has its own part
    causes = _CONSEQUENCES.get(name, ())
    if not (difference.mine and difference.other):
        causes += next((each for begin, each in _ON_DEMAND.items() if name.startswith(begin)), ())
    return any(each.name.startswith(cause) for each in found for cause in causes)
