# SPDX-License-Identifier: Apache-2.0
"""A directory that was copied by hard links on the server: does a client wait for the original's locks?

The lock files of a copy are the original's own until a process parts them: what is locked in one is locked in both.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lockcache.lowlevel import Layout
from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Site

__all__ = ["copied"]

_NAME: Final = "original"
_COPY: Final = "copy"


def copied(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the lock files that a copy shares with its original, before and after a client has used it."""
    site.make(_NAME)
    with Rank(site.clients[0]) as rank:
        rank.call("open", rank.client.at(_NAME))
        rank.call("put", "key", b"a value")
        rank.call("close")
    shutil.copytree(site.at(_NAME), site.at(_COPY), copy_function=os.link)
    yield "before", _shared(site)
    with Rank(site.clients[1]) as rank:
        rank.call("open", rank.client.at(_COPY))
        rank.call("put", "key", b"another value")
        yield "entries", rank.call("entries")
    yield "after", _shared(site)


def _shared(site: Site) -> int:
    locks = Path(Layout(site.at(_COPY)).locks)
    return sum(file.stat().st_nlink > 1 for file in locks.iterdir())
