# SPDX-License-Identifier: Apache-2.0
"""An entry that one host replaces or removes, maybe while a process has the old file open: what does the other read?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

from lockcache.lowlevel import Layout, entry_name
from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Client, Site

__all__ = ["replaced"]

_KEYS: Final = 3
_SECONDS: Final = 5.0
# No read ends this wait, as the new value does the other.
_REMOVED_SECONDS: Final = 1.5
_PAUSE_SECONDS: Final = 0.05
_OLD: Final = b"old " * 500
_NEW: Final = b"new " * 500


def replaced(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield for each holder how many reads that began after a put or ``del`` returned gave the old value, and when."""
    first, second = site.clients
    holders: dict[str, Client | None] = {"nobody": None, "a process on the reader's host": second}
    holders["a process on the writer's host"] = first
    name = site.make("replaced")
    with Rank(first) as writer, Rank(second) as reader:
        writer.call("open", first.at(name))
        reader.call("open", second.at(name))
        for number, (held_by, client) in enumerate(holders.items()):
            keys = [f"{number}/{each}" for each in range(_KEYS)]
            yield held_by, _change_each(writer, reader, client, name, keys, removes=False)
            keys = [f"{number}/removed/{each}" for each in range(_KEYS)]
            yield f"removed while {held_by}", _change_each(writer, reader, client, name, keys, removes=True)


def _change_each(
    writer: Rank, reader: Rank, holder: Client | None, name: str, keys: list[str], *, removes: bool
) -> dict[str, Any]:
    old = reads = 0
    until = 0.0
    for key in keys:
        with ExitStack() as stack:
            writer.call("put", key, _OLD)
            if reader.call("poll", key, _OLD, _SECONDS * 10, _PAUSE_SECONDS)[-1][1] != "wanted":
                raise RuntimeError(f"{key} was never seen on the reader's host")
            if holder is not None:
                keeper = stack.enter_context(Rank(holder))
                keeper.call("hold", Layout(holder.at(name)).entry(entry_name(key.encode())))
            returned = writer.call("remove", key) if removes else writer.call("put", key, _NEW)
            seen = reader.call("poll", key, _NEW, _REMOVED_SECONDS if removes else _SECONDS, _PAUSE_SECONDS)
            late = [began - returned for began, what in seen if what == "other"]
            old, reads = old + len(late), reads + len(seen)
            until = max([until, *late])
    return {"old": old, "reads": reads, "until_seconds": round(until, 2)}
