# SPDX-License-Identifier: Apache-2.0
"""Trees of headers, and whether a change in one changes the fingerprint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lockcache.headers import Closure, Evidence, closure_cache, examine, files, fingerprint

Tree = Callable[[dict[str, str]], None]


class Store(dict[bytes, bytes]):
    """Where processes save closures for each other; counts what is asked for and found."""

    found = 0
    kind = Evidence.STAT

    def evidence(self, path: bytes) -> Evidence:
        return self.kind

    def load(self, name: bytes) -> bytes | None:
        content = self.get(name)
        self.found += content is not None
        return content

    def store(self, name: bytes, content: bytes) -> None:
        self[name] = content

    @contextlib.contextmanager
    def turn(self, name: bytes, stale: bytes | None) -> Iterator[bytes | None]:
        yield None


def forget() -> None:
    """Remember as little as a new process."""
    closure_cache._closures.clear()
    files._contents.clear()


def examine_anew(code: str, store: Store | None = None, **arguments: Any) -> Closure:
    """Returns the closure as a new process finds it."""
    forget()
    return examine(code, store=store, **arguments)


def changes(code: str, change: Callable[[], object], **arguments: Any) -> bool:
    """Returns whether ``change`` changes the fingerprint. What is saved for other processes has to say the same."""
    store = Store()
    before = examine_anew(code, store, **arguments)
    assert examine_anew(code, store, **arguments)._replace(facts=before.facts) == before
    assert fingerprint(code, **arguments) == fingerprint(code, **arguments) == before.placed
    change()
    changed = fingerprint(code, **arguments)
    assert examine_anew(code, store, **arguments)[:2] == examine_anew(code, **arguments)[:2]
    assert examine_anew(code, **arguments).placed == changed
    return changed != before.placed


def rewrites(name: str) -> Callable[[], object]:
    return lambda: Path(name).write_text("// another one\n")
