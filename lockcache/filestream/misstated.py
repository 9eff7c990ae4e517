"""What is wrong with a file in JSON that somebody edited, in words that lead there: line and column, from 1.

For messages only: slow, and called after a mistake was found.
"""

from __future__ import annotations

import json
import re

__all__ = ["place_of", "why"]


def place_of(text: bytes, key: str) -> str:
    """Where the value of ``key`` stands, ``line 2, column 21``; the last one counts, as for the parser."""
    found = list(re.finditer(rb'"%s"\s*:\s*' % re.escape(key).encode(), text))
    if not found:
        return "line 1, column 1"
    before = text[: found[-1].end()].decode("utf-8", "replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def why(error: Exception) -> str:
    """What the parser, or who asked for a key, came upon."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, (TypeError, AttributeError)):
        return "line 1, column 1: this is no JSON object"
    return str(error)
