"""Parts of a header digest, for people: which file changed (:mod:`lockcache.explain`).

A digest says that some of a thousand files changed; the parts say which, as far as there is room for them. Headers of
directories with few files come first, because a toolkit's thousand change with the compiler, a user's own every day.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from lockcache.explain import Part, make_part

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
    """The directory of the search that a file was found below, and its name from there."""
    for root in include_path:
        if path.startswith(root.rstrip(b"/") + b"/"):
            return root, path[len(root.rstrip(b"/")) + 1 :]
    return os.path.split(path)
