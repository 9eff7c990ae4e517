# SPDX-License-Identifier: Apache-2.0
"""Computed names, ``#include MACRO`` and ``__has_include(MACRO)``: all that they might mean.

Keeps invariant 1 (a hit is whole) where macros decide: they are not expanded, so every file below each directory that
would be searched counts as included, and is followed like one. A name that leads out of those directories has to be
written somewhere: strings in macros that lead out are followed, and macros that could only be composed to such a name
are refused. Stated in the log, because such a fingerprint takes half a second for a whole toolkit, and 8 ms when
nothing changed; bounded, because one of the directories is the source's, which may be anything.

Not promised: to see a ``..`` that is composed of single dots; nor entries and own files of a cache that lies in one of
those directories, which programs replace while this one compiles.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lockcache.errors import UncacheableError
from lockcache.headers.files_seen import Identity, Observer
from lockcache.headers.source import Node, Source

_log = logging.getLogger("lockcache")
#: The names that were logged: each walk would log the same again. Emptied when full.
_said: set[tuple[bytes, bytes]] = set()
_SAID_LIMIT = 1024

#: Files that one fingerprint may take from trees. A CUDA toolkit has 2,500; this many take 4 s to read.
_TREE_FILES_LIMIT = 20_000

#: What a cache directory of lockcache has. The working directory of a program often has one.
_CACHE_NAMES = frozenset({b"CACHEDIR.TAG", b"entries", b"lockcache", b"tmp"})


class Tree(NamedTuple):
    """A directory, and all files below it."""

    root: bytes
    paths: list[bytes]


class Widening:
    """The files that computed names add to one walk. Asked again whenever the walk has found more files."""

    def __init__(self, observer: Observer, include_path: Sequence[bytes], beside: bool) -> None:
        self._observer = observer
        self._include_path = include_path
        self._beside = beside
        self._taken: set[Identity | None] = set()
        self._count = 0

    def outward(self, nodes: Sequence[Node]) -> Iterator[tuple[Node, list[Source]]]:
        """Yields each file with a computed ``#include``, and the sources whose strings lead out. Macros may raise."""
        for node in [node for node in nodes if node.source.computed]:
            for other in nodes:
                if other.source.outward_pieces:
                    raise UncacheableError(
                        f"{_says(node)} includes a computed name, and with {os.fsdecode(other.path)} "
                        f"({_text(other.source.outward_pieces)}) that may be one outside of the directories that are "
                        "searched. Name the header literally, or compile without a cache"
                    )
            yield node, [other.source for other in nodes if other.source.outward]

    def trees(self, nodes: Sequence[Node]) -> Iterator[Tree]:
        """Yields the trees that these files make part of the key and that were not taken yet."""
        computed = [node for node in nodes if node.source.computed]
        probing = [node for node in nodes if node.source.computed_probe]
        if computed or probing:
            # A macro that asks __has_include("x.h") looks next to whichever file uses it.
            beside = [node.directory for node in (nodes if probing else computed) if self._beside]
            for root in list(dict.fromkeys([*self._include_path, *beside])):
                if not os.path.isdir(root):
                    self._observer.is_file(root)  # the fact that no directory is there
                elif self._observer.identity(root) not in self._taken:
                    yield self._take(root, (computed or probing)[0])

    def _take(self, root: bytes, cause: Node) -> Tree:
        _say(cause, root)
        pending, paths = [root], []
        seen: set[Identity | None] = set()
        while pending:
            directory = pending.pop()
            place = self._observer.identity(directory)
            if place in seen:  # a link to a directory above
                continue
            seen.add(place)
            names = self._observer.names(directory)
            passed_over = _CACHE_NAMES if _CACHE_NAMES.issubset(names) else ()
            for name in names:
                if name in passed_over:
                    continue
                path = os.path.join(directory, name)
                if os.path.isdir(path):
                    pending.append(path)
                elif self._observer.is_file(path):
                    paths.append(path)
                    self._count_file(cause, root)
        self._taken |= seen
        return Tree(root, sorted(paths))

    def _count_file(self, cause: Node, root: bytes) -> None:
        self._count += 1
        if self._count > _TREE_FILES_LIMIT:
            raise UncacheableError(
                f"{_says(cause)} includes a computed name, so every file below the searched directories counts, and "
                f"with {os.fsdecode(root)} there are more than {_TREE_FILES_LIMIT}. Name the header literally, search "
                "smaller directories, set no_source_include, or compile without a cache"
            )


def _say(cause: Node, root: bytes) -> None:
    if (cause.path, root) in _said:
        return
    if len(_said) >= _SAID_LIMIT:
        _said.clear()
    _said.add((cause.path, root))
    _log.warning("%s includes a computed name: every file below %s counts as a header", _says(cause), os.fsdecode(root))


def _says(node: Node) -> str:
    return f"{os.fsdecode(node.path)} ({_text(node.source.computed or node.source.computed_probe)})"


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
