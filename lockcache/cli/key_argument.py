"""The entry that an operator means: by its key, or by the start of its hash as ``ls`` prints it.

Decides the order: a key that is stored under this very text, else a hash. ``hex:...`` is a key in bytes, for keys that
are not text (those of ``make_program_cache_key``).
"""

from __future__ import annotations

import re
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.lowlevel import Layout, entry_name, find_entry, find_names

__all__ = ["complete_name", "key_name", "resolve_name"]

_SHORTEST_PREFIX: Final = 4
_HASH: Final = re.compile(r"[0-9a-f]{4,64}", re.ASCII)
_HASH_BEGUN: Final = re.compile(r"[0-9a-f]{2,64}", re.ASCII)
_MOST_COMPLETIONS: Final = 100


def resolve_name(layout: Layout, text: str) -> str:
    """The name of the entry that ``text`` means. Raises :class:`click.BadParameter` naming it."""
    name = key_name(text)
    if text.startswith("hex:") or find_entry(layout, name) is not None or _HASH.fullmatch(text.lower()) is None:
        return _existing(layout, name, text)
    if len(text) == 64:
        return _existing(layout, text.lower(), text)
    names = find_names(layout, text.lower(), 2)
    if len(names) > 1:
        raise click.BadParameter(f"{text!r} is the start of several hashes; give more digits", param_hint="KEY")
    return _existing(layout, names[0] if names else name, text)


def key_name(text: str) -> str:
    """The name of the entry whose key is ``text``, stored or not."""
    return entry_name(_bytes(text) if text.startswith("hex:") else text.encode(errors="surrogateescape"))


def complete_name(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """The hashes that begin with ``text``, from two digits on. A shell that asks gets no error, only no answer."""
    if _HASH_BEGUN.fullmatch(text) is None:
        return []
    try:
        return find_names(Layout(resolve_path(ctx.params.get("directory"))), text, _MOST_COMPLETIONS)
    except (OSError, ValueError):
        return []


def _existing(layout: Layout, name: str, text: str) -> str:
    if find_entry(layout, name) is None:
        accepted = f"a key, hex: and a key's bytes in hex, or {_SHORTEST_PREFIX} or more digits of a hash"
        raise click.BadParameter(f"there is no entry {text!r} in {layout.root}; accepted: {accepted}", param_hint="KEY")
    return name


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a key in hex; accepted: hex:00ff01", param_hint="KEY") from None
