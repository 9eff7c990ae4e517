# SPDX-License-Identifier: Apache-2.0
"""The closure of includes: walks from one file to the next as NVRTC searches, and digests what it finds.

Keeps invariant 1 (a hit is whole): whatever file could change what NVRTC sees changes the digest. Both branches of each
conditional count. Missing files count as much as found ones: a file that newly shadows another is another file. At
which place of the search order a name was found makes a difference only where some text goes on behind that place
(``#include_next``), or where the output tells what the file is called there; a second digest, ``placed``, always has
it.

The order, found by watching NVRTC 13.5 open files:

- ``"x.h"``: next to the file that names it (of the source: the directory part of its name, from the working directory;
  not with ``no_source_include``), then ``include_path`` in order. Only next to that file, not next to those above it.
- ``<x.h>``: ``include_path`` in order. An absolute name: nowhere else, in both forms.
- ``pre_include``: the working directory, whatever the source's name and even with ``no_source_include``, then
  ``include_path``.
- A name whose last part has no dot is tried with ``.stdh`` in the same directory before the next directory.
- Only regular files count; ``..`` is the file system's, through links too; "next to" is where the name as spelled lies,
  not where a link leads.
- ``#include_next`` goes on behind the directory of the file it is in: here every place of the search counts.
- Two names of one inode are one file to ``#pragma once``, so the digest says which are (two copies are two).

What paths are called beyond that is in neither digest: the same headers under two prefixes agree. ``__FILE__`` is
the directory of ``include_path`` where the file was found and the name as spelled; :mod:`.paths` finds out whether that
can reach the output, and a key has the options that spell it, and the places, then.

A digest says that some of a thousand files changed; the parts say which, as far as there is room for them. Headers of
directories with few files come first, because a toolkit's thousand change with the compiler, a user's own every day.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lockcache.errors import UncacheableError
from lockcache.explain import Part, make_part
from lockcache.headers import files
from lockcache.headers.computed import Widening
from lockcache.headers.files_seen import Facts, Identity, Observer
from lockcache.headers.paths import PathUse
from lockcache.headers.source import INCLUDE, NEXT, PROBE, Node, Operand, Source

#: The number of the file that a name was found to be; :data:`_IS_THERE` where only that was asked.
_Outcome = int
_IS_THERE: Final = -1


class Request(NamedTuple):
    """The arguments of a search. Directories are absolute unless there is no working directory."""

    source: Source
    #: What the source is called in messages.
    name: str
    #: Where the source lies.
    directory: bytes
    working_directory: bytes
    include_path: tuple[bytes, ...]
    pre_include: tuple[bytes, ...]
    #: False: ``no_source_include``.
    beside: bool

    @property
    def looks_around(self) -> bool:
        """Whether the source itself makes NVRTC search the working directory, or the one where the source lies."""
        source = self.source
        is_quoted = any(operand.quoted for operand in source.operands)
        return bool(self.pre_include) or (self.beside and (is_quoted or bool(source.computed or source.computed_probe)))


class Closure(NamedTuple):
    """The digests, and the facts on which they rest."""

    #: Of what the compiler sees of the files.
    digest: bytes
    #: Also of where in the search order they were found, by which paths to them are spelled.
    placed: bytes
    facts: Facts
    #: False where a file was too young when it was read: the facts may fail to tell a change.
    settled: bool
    #: The files that were read, for people.
    parts: tuple[Part, ...] = ()
    #: What the source and these files do with their paths.
    paths: PathUse = PathUse.NONE
    #: Whether the working directory, or the one where the source lies, was searched.
    looked_around: bool = True


def walk(request: Request) -> Closure:
    """Read everything that the source can reach. Raises UncacheableError, or OSError for a file that cannot be read."""
    return _Walk(request).run()


class _Walk:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._observer = Observer()
        self._queue: deque[Node] = deque()
        self._nodes: list[Node] = []
        #: Files by the directory that holds them and their name in it: however a path winds its way there through
        #: links and dots, what is next to the file is the same. So a header that includes "./itself.h" ends.
        self._numbers: dict[tuple[Identity | bytes, bytes], int] = {}
        self._aliases: dict[Identity, int] = {}
        self._homes: dict[Identity | bytes, int] = {}
        self._found: dict[tuple[Operand, bytes], tuple[_Outcome, ...]] = {}
        self._description: list[object] = []
        self._settled = True
        #: Digests of the files, by number; the first node is the source.
        self._contents: list[bytes] = []
        self._paths = PathUse.NONE
        #: Which directories of the search are the same; where in its order names were found, and files lie.
        self._aliased: list[int] = []
        self._places: list[int] = []
        self._has_next = False

    def run(self) -> Closure:
        self._describe_search()
        request = self._request
        self._add(Node(0, os.fsencode(request.name), request.directory, request.source))
        for name in request.pre_include:
            self._description.append(self._resolve(Operand(INCLUDE, True, name), request.working_directory))
        self._drain()
        widening = Widening(self._observer, request.include_path, request.beside)
        while self._widen(widening):
            self._drain()
        placed = _digest((self._description, self._aliased, self._places))
        digest = placed if self._has_next else _digest((self._description,))
        found = [(node.path, content) for node, content in zip(self._nodes[1:], self._contents, strict=True)]
        parts = name_headers(found, request.include_path)
        # What a macro asks for in one file is looked for next to every file.
        asks_everywhere = request.beside and any(node.source.computed_probe for node in self._nodes)
        looked_around = request.looks_around or asks_everywhere
        return Closure(digest, placed, self._observer.facts(), self._settled, parts, self._paths, looked_around)

    def _describe_search(self) -> None:
        """Describe which directories of the search are the same: ``#include_next`` compares inodes, not names."""
        identities = [self._observer.identity(directory) for directory in self._request.include_path]
        # A missing one is none of the others, so that making an empty directory changes nothing.
        self._aliased = [i if found is None else identities.index(found) for i, found in enumerate(identities)]
        self._description.append(self._request.beside)
        self._homes.update((found, i) for i, found in reversed(list(enumerate(identities))) if found is not None)

    def _drain(self) -> None:
        while self._queue:
            node = self._queue.popleft()
            self._description.append((node.number, self._follow(node.source.operands, node)))

    def _follow(self, operands: Sequence[Operand], node: Node) -> list[tuple[_Outcome, ...]]:
        # A name that is not looked for next to its file leads to the same place from everywhere: no need to search
        # again.
        beside = node.directory if self._request.beside else b""
        return [self._resolve(operand, beside if operand.quoted else b"") for operand in operands]

    def _widen(self, widening: Widening) -> bool:
        """Take in what computed names may lead to. Returns False if there is nothing new."""
        before = len(self._nodes)
        for node, others in widening.outward(self._nodes):
            self._description += [("outward", node.number, self._follow(other.outward, node)) for other in others]
        for tree in widening.trees(self._nodes):
            # Without the slashes with which a root may end.
            names = [path[len(tree.root) :].lstrip(b"/") for path in tree.paths]
            self._description.append(("tree", [*zip(names, map(self._visit, tree.paths), strict=True)]))
        return len(self._nodes) > before

    def _resolve(self, operand: Operand, first: bytes) -> tuple[_Outcome, ...]:
        """Returns what the name leads to, with ``first`` before ``include_path``. The empty tuple: nothing."""
        known = self._found.get((operand, first))
        if known is None:
            known = self._found[operand, first] = tuple(self._search(operand, first))
        return known

    def _search(self, operand: Operand, first: bytes) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for place, path in self._candidates(operand.name, first):
            if not self._observer.is_file(path):
                continue
            self._places.append(place)
            if operand.verb == PROBE:
                return [_IS_THERE]  # only its existence was asked for; its content does not count
            outcomes.append(self._visit(path))
            if operand.verb != NEXT:
                break
            self._has_next = True
        return outcomes

    def _candidates(self, name: bytes, first: bytes) -> list[tuple[int, bytes]]:
        if name.startswith(b"/"):
            return [(0, name)]
        places = [(0, first)] if first else []
        places += enumerate(self._request.include_path, start=1)
        suffixes = (b"",) if b"." in name.rpartition(b"/")[2] else (b"", b".stdh")
        # The place and the suffix as one number: a name found as x.stdh is not one found as x.
        return [
            (place * 2 + i, os.path.join(directory, name) + suffix)
            for place, directory in places
            for i, suffix in enumerate(suffixes)
        ]

    def _visit(self, path: bytes) -> int:
        """Returns the number of the file at this path, which is read if it is a new one."""
        directory, name = os.path.split(path)
        place = self._observer.identity(directory) or directory
        number = self._numbers.get((place, name))
        if number is not None:
            return number
        found, content, settled = files.load(path)
        self._observer.saw(path, found)
        self._settled = self._settled and settled
        number = self._numbers[place, name] = len(self._nodes)
        alias = self._aliases.setdefault(found[:2], number)
        self._description.append((number, content.digest, alias))
        self._places.append(self._homes.get(place, -1))
        self._contents.append(content.digest)
        self._add(Node(number, path, directory, content.source))
        return number

    def _add(self, node: Node) -> None:
        if node.source.clock:
            raise UncacheableError(
                f"{os.fsdecode(node.path)} has {node.source.clock.decode()}: it takes the time of the compilation into "
                "the output. Remove it, or compile without a cache"
            )
        self._nodes.append(node)
        self._queue.append(node)
        self._paths |= node.source.paths


def _digest(description: tuple[object, ...]) -> bytes:
    text = repr(("lockcache headers 2", *description)).encode()
    return hashlib.sha256(text, usedforsecurity=False).digest()


#: Named one by one. Some thirty bytes each, of the kilobyte that an entry has for all of its parts.
_MOST_NAMED: Final = 20


def name_headers(files: Iterable[tuple[bytes, bytes]], include_path: Sequence[bytes]) -> tuple[Part, ...]:
    """Returns the parts for (path, digest) of each file that was read, in the order in which they were found."""
    found: defaultdict[bytes, bytes] = defaultdict(bytes)
    roots: dict[bytes, bytes] = {}
    for path, digest in files:
        root, name = _place(path, include_path)
        found[name] += digest  # of two directories, where one name is found in both
        roots[name] = root
    files_of = Counter(roots.values())
    ranked = sorted(found.items(), key=lambda item: files_of[roots[item[0]]])
    named, rest = ranked[:_MOST_NAMED], ranked[_MOST_NAMED:]
    parts = [make_part(f"header {os.fsdecode(name)}", digest) for name, digest in named]
    if rest:
        parts.append(make_part("header not named", b"".join(digest for _, digest in rest), f"{len(rest)} more"))
    return tuple(parts)


def _place(path: bytes, include_path: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Returns the directory of the search that a file was found below, and its name from there."""
    for root in include_path:
        if path.startswith(root.rstrip(b"/") + b"/"):
            return root, path[len(root.rstrip(b"/")) + 1 :]
    return os.path.split(path)
