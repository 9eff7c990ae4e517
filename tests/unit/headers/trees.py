"""Trees of headers, and whether a change in one changes the fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockcache.headers import fingerprint

Tree = Callable[[dict[str, str]], None]


def changes(code: str, change: Callable[[], object], **arguments: Any) -> bool:
    """Returns whether ``change`` changes the fingerprint."""
    before = fingerprint(code, **arguments)
    assert fingerprint(code, **arguments) == before
    change()
    return fingerprint(code, **arguments) != before


def rewrites(name: str) -> Callable[[], object]:
    return lambda: Path(name).write_text("// another one\n")
