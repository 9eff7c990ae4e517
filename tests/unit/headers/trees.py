"""Trees of headers, and what a fingerprint makes of a change in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockcache.headers import fingerprint

Tree = Callable[[dict[str, str]], None]


def changes(code: str, change: Callable[[], object], **arguments: Any) -> bool:
    """Returns whether the fingerprint is another one after ``change``."""
    before = fingerprint(code, **arguments)
    assert fingerprint(code, **arguments) == before
    change()
    return fingerprint(code, **arguments) != before


def rewrites(name: str) -> Callable[[], object]:
    return lambda: Path(name).write_text("// another one\n")
