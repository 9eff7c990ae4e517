# SPDX-License-Identifier: Apache-2.0
"""Patterns of folders: where a program keeps its cache, and which of the folders there are one entry each.

Decides which text is a pattern, and by which name folders are found again on another node: the pattern as it is
written, with the variable's name and not its value. So two nodes, or two jobs, may have the cache in different places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from lockcache.integrations.staged import is_staged

__all__ = ["Pattern", "is_unfinished", "parse_pattern"]

_ANY: Final = "*"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)|([A-Z][A-Z0-9_]*)", re.ASCII)
_MOST_LEVELS: Final = 16
_LONGEST_BYTES: Final = 4096

# Names of files and folders that programs have not finished, or move away before they remove them.
_UNFINISHED: Final = re.compile(
    r"tmp.*|temp|(staging|partial|trash|deleted)([._-].*)?|.*[._-](tmp|temp|staging|partial|incomplete|trash|deleted)\d*"
    r"|.*[._-]tmp[._-].*",
    re.ASCII | re.IGNORECASE,
)


class Pattern(NamedTuple):
    """The folders that are entries: those below ``root`` whose path matches ``levels``, in which ``*`` is any name."""

    #: As it is written. A variable is named, its value is not in here.
    text: str
    #: The folder in front of the first ``*``, as an absolute path.
    root: str
    levels: tuple[str, ...]

    def matches(self, path: str) -> bool:
        """Returns whether a path below the root is that of an entry, and names nothing that is under way."""
        names = path.split("/")
        return len(names) == len(self.levels) and all(map(_fits, self.levels, names))


def _fits(level: str, name: str) -> bool:
    if level != _ANY:
        return name == level
    is_hidden = name.startswith(".") or name.endswith(".lock") or "\0" in name
    return bool(name) and not is_hidden and _is_text(name) and not is_unfinished(name) and not is_staged(name)


def _is_text(name: str) -> bool:
    """Returns whether a name is UTF-8, as keys are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_unfinished(name: str) -> bool:
    """Returns whether a file or folder of this name is under way, or on its way out."""
    return _UNFINISHED.fullmatch(name) is not None


def parse_pattern(text: str, environment: Mapping[str, str]) -> Pattern:
    """Returns the pattern that ``text`` is: ``DIR/*/`` and the like, where the first name may be that of a variable.

    Raises :class:`ValueError` that says what is wrong.
    """
    if not text.isprintable() or len(text.encode(errors="replace")) > _LONGEST_BYTES:
        raise ValueError(f"{text!r:.80} is not a path that can be printed, of at most {_LONGEST_BYTES} bytes")
    first, *names = text.split("/")
    if not names or names.pop() or not text.strip("/"):
        raise ValueError(f"{text!r} has to end with a slash, as DIR/*/ does: folders are kept, not files")
    levels = [name for name in names if name not in ("", ".")]
    _refuse_levels(text, levels)
    written, base = _resolve(text, first, environment)
    if _ANY not in levels:
        raise ValueError(
            f"{text!r} has no level '*', such as in DIR/*/; write it in single quotes, or the shell replaces it"
        )
    split = levels.index(_ANY)
    root = os.path.join(base, *levels[:split])
    if root == "/":
        raise ValueError(f"{text!r} begins at the root of all files; name the folder of one program's cache")
    return Pattern("/".join([written, *levels, ""]), root, tuple(levels[split:]))


def _refuse_levels(text: str, levels: list[str]) -> None:
    if len(levels) > _MOST_LEVELS:
        raise ValueError(f"{text!r} has more than {_MOST_LEVELS} levels")
    for name in levels:
        if name == "..":
            raise ValueError(f"{text!r} has '..': write the path that it leads to")
        if name == "**":
            raise ValueError(f"{text!r} has '**': write one '*' for each level, such as DIR/*/*/")
        if name != _ANY and set(name) & set("*?["):
            raise ValueError(f"{text!r} has the pattern {name!r}: only '*' is one, for a whole name")


def _resolve(text: str, first: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Returns the first name as it is a part of keys, and the absolute folder that it stands for."""
    match = _VARIABLE.fullmatch(first)
    if match is not None:
        name = match[1] or match[2] or match[3]
        value = environment.get(name, "")
        if not value:
            folder = f"; for a folder of that name write ./{text}" if match[3] else ""
            raise ValueError(f"{text!r}: the variable {name} is not set{folder}")
        return name, os.path.abspath(os.path.expanduser(value))
    if "$" in first or set(first) & set("*?["):
        raise ValueError(f"{text!r} begins with {first!r}: that is neither a folder nor the name of a variable")
    if first == "..":
        raise ValueError(f"{text!r} has '..': write the path that it leads to")
    if first.startswith("~"):
        home = os.path.expanduser(first)
        if home == first:
            raise ValueError(f"{text!r}: {first} has no home directory")
        return first, os.path.abspath(home)
    if not first:
        return "", "/"
    return ("." if first == "." else f"./{first}"), os.path.abspath(first)
