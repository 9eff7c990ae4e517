# SPDX-License-Identifier: Apache-2.0
"""Doors of a framework: the parts of it that an adapter needs, which are looked for before anything is changed.

Decides whether a framework can be adapted: by what it has, and not by its version.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

__all__ = ["UnsupportedError", "looking_for_doors"]

_log = logging.getLogger("lockcache")
_reported: set[str] = set()


class UnsupportedError(Exception):
    """This framework cannot be adapted: it lacks a door that the adapter needs, or somebody else has taken it."""


@contextlib.contextmanager
def looking_for_doors(package: str, version: str, oldest_tried: tuple[int, ...]) -> Iterator[None]:
    """A block that looks for all that an adapter needs of a framework, before it changes anything.

    The doors decide, and not the version: a door that is missing ends the block with :class:`UnsupportedError`, which
    names it. Where an older version than any that was tried has all of them, the adapter is used, and one line says so.
    """
    older = _describe_older(version, oldest_tried)
    try:
        yield
    except (AttributeError, ImportError, UnsupportedError) as error:
        raise UnsupportedError(f"{package} {version}: {error}" + (older and f" ({older})")) from error
    if older and package not in _reported:
        _reported.add(package)
        _log.warning("%s %s is used with lockcache, but is %s", package, version, older)


def _describe_older(version: str, oldest_tried: tuple[int, ...]) -> str:
    """Returns that ``version``, ``1.2.3rc1+cu13`` say, is older than any that was tried; else nothing."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    if numbers is None or tuple(map(int, numbers[0].split("."))) >= oldest_tried:
        return ""
    return f"older than {'.'.join(map(str, oldest_tried))}, the oldest version that was tried"
