# SPDX-License-Identifier: Apache-2.0
"""The entry that an operator means: by its key, or as ``ls`` prints it: by the start of its hash, or by its name.

Decides the order: a key that is stored under this very text, else a hash, else the name of a kernel, if one entry has
it. ``hex:...`` is a key in bytes, for keys that are not text (those of ``make_program_cache_key``).
"""

from __future__ import annotations

import os
import re
import time
from itertools import islice
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.bundle import Onlooker
from lockcache.cli.open_directory import default_cache
from lockcache.cli.progress import step_bar
from lockcache.filestream.inspect import UNKNOWN
from lockcache.lowlevel import (
    SHARDS,
    Layout,
    Selection,
    describe_entry,
    entry_name,
    find_entry,
    find_names,
    select_entries,
)

_SHORTEST_PREFIX: Final = 4
_HASH: Final = re.compile(r"[0-9a-f]{4,64}", re.ASCII)
_HASH_BEGUN: Final = re.compile(r"[0-9a-f]{2,64}", re.ASCII)
_MOST_COMPLETIONS: Final = 100
# The characters that patterns give a meaning, and that are escaped here.
_WILD: Final = re.compile(r"[\[*?]")
# An error lists them.
_MOST_NAMED: Final = 5


def resolve_name(layout: Layout, text: str) -> str:
    """Returns the name of the entry that ``text`` means. Raises :class:`click.BadParameter` naming it.

    An entry that only the seed of the directory has is found by its key or hash.
    """
    name, seeded = key_name(text), Onlooker(layout, is_seeded=True).seeded_names
    if text.startswith("hex:") or find_entry(layout, name) is not None or name in seeded:
        return _existing(layout, name, text, seeded)
    names, begun = [], text.lower()
    if _HASH.fullmatch(begun) is not None:
        names = [begun] if len(text) == 64 else find_names(layout, begun, 2)
        names += [each for each in seeded if each.startswith(begun) and each not in names]
        if len(names) > 1:
            raise click.BadParameter(f"{text!r} is the start of several hashes; give more digits", param_hint="KEY")
    return _existing(layout, names[0] if names else _called(layout, text) or name, text, seeded)


def key_name(text: str) -> str:
    """Returns the name of the entry whose key is ``text``, stored or not."""
    return entry_name(_bytes(text) if text.startswith("hex:") else text.encode(errors="surrogateescape"))


def refuse_lone_directory(text: str, directory: str | None, usage: str) -> None:
    """Raise :class:`click.UsageError` for a KEY that is a directory, if there is no default one to look for it in."""
    if directory is None and os.path.isdir(os.path.expanduser(text)) and default_cache() is None:
        raise click.UsageError(f"{text!r} is a directory, and no KEY is given: {usage}")


def complete_name(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """Returns the hashes that begin with ``text``, of at least two digits. Raises nothing: a shell calls it."""
    if _HASH_BEGUN.fullmatch(text) is None:
        return []
    try:
        return find_names(Layout(resolve_path(ctx.params.get("directory"))), text, _MOST_COMPLETIONS)
    except (OSError, ValueError):
        return []


def is_called(label: str, text: str) -> bool:
    """Returns whether an entry of this label is the kernel, or the template before its ``<``, that ``text`` names."""
    return label == text or any(text in (each, each.partition("<")[0]) for each in label.split(", "))


def _called(layout: Layout, text: str) -> str | None:
    """Returns the only entry of this name; ``None`` if there is none. Reads all entries."""
    if text == UNKNOWN:  # an empty filter would match all
        return None
    pattern = Selection(label=("*" + _WILD.sub("[\\g<0>]", text) + "*",))
    with step_bar("looking for the name", SHARDS) as advance:
        labels = [
            (found.name, (described.label or "") if (described := describe_entry(layout, found)) else "")
            for found in select_entries(layout, pattern, time.time_ns(), lambda: advance(1))
        ]
    names = sorted(name for name, label in labels if label == text)
    names = (names or sorted(name for name, label in labels if is_called(label, text)))[:_MOST_NAMED]
    if len(names) > 1:
        hashes = ", ".join(each[:12] for each in names)
        raise click.BadParameter(f"several entries are called {text!r}: {hashes}; give one hash", param_hint="KEY")
    return names[0] if names else None


def _begun(layout: Layout, text: str) -> list[str]:
    """Returns the first names of kernels that begin so. Reads entries until there are enough."""
    pattern = Selection(label=(_WILD.sub("[\\g<0>]", text) + "*",))
    names = dict.fromkeys(
        described.label or ""
        for found in select_entries(layout, pattern, time.time_ns(), lambda: None)
        if (described := describe_entry(layout, found)) is not None
    )
    return list(islice(names, _MOST_NAMED))


def _existing(layout: Layout, name: str, text: str, seeded: list[str]) -> str:
    if find_entry(layout, name) is None and name not in seeded:
        accepted = f"a key, hex: and a key's bytes in hex, {_SHORTEST_PREFIX} or more digits of a hash, or a name"
        accepted += "; of a kernel of the seed a key or hash" if seeded else ""
        if "/" in text or os.path.isdir(text):
            accepted = "a key" + (
                "; that is a directory: KEY is missing" if os.path.isdir(text) else "; no such directory"
            )
        elif begun := _begun(layout, text):
            accepted = f"{', '.join(begun)}; or {accepted}"
        raise click.BadParameter(f"there is no entry {text!r} in {layout.root}; accepted: {accepted}", param_hint="KEY")
    return name


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a key in hex; accepted: hex:00ff01", param_hint="KEY") from None
