# SPDX-License-Identifier: Apache-2.0
"""SIGKILL on one host: the other takes over its turn, and the first reap after a minute removes its staged files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from lockcache.lowlevel import Layout
from lockcache_stress.hosts.guest.ranks import REAPED_AFTER_SECONDS, Rank
from lockcache_stress.hosts.guest.site import Site

__all__ = ["kill"]

_VALUE: Final = os.urandom(8_000_000)
_WAITING_SECONDS: Final = 2.0
_TRIES: Final = 5
_UNDER_WAY_SECONDS: Final = 1.0


def kill(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield how the holder was taken over, and whether the staged file was removed."""
    yield "takeover", _take_over(site)
    yield "staged", _reap(site)


def _take_over(site: Site) -> dict[str, Any]:
    first, second = site.clients
    name = site.make("kill")
    with Rank(first) as holder, Rank(second) as waiter:
        holder.call("open", first.at(name))
        waiter.call("open", second.at(name))
        holder.begin("compute", "taken over", b"the dead host's", at_gate=True)
        site.wait_for_lease(name)
        waiter.begin("compute", "taken over", b"the living host's")
        time.sleep(_WAITING_SECONDS)  # the second process has to be waiting when the first is killed
        has_waited = not waiter.has_answered()
        holder.kill()
        killed = time.monotonic()
        code, computed = waiter.result()
        seconds = time.monotonic() - killed
    is_right = computed and code == b"the living host's"
    return {"waited": has_waited, "taken_over": is_right, "seconds": round(seconds, 2)}


def _reap(site: Site) -> dict[str, Any]:
    second = site.clients[1]
    name = site.make("kill-staged")
    staged = Layout(site.at(name)).tmp
    with Rank(second) as reaper:
        reaper.call("open", second.at(name))
        left = _leave_staged(site, name, staged)
        names = os.listdir(staged)
        reaper.call("recount")
        young = len(os.listdir(staged))
        reaper.call("reap", REAPED_AFTER_SECONDS)
        return {"left": left, "young": young, "after_a_minute": len(os.listdir(staged)), "names": names}


def _leave_staged(site: Site, name: str, staged: str) -> int:
    """SIGKILL writers on the first host in the middle of a write. Returns the number of staged files that are left."""
    client = site.clients[0]
    for _ in range(_TRIES):
        with Rank(client) as writer:
            writer.call("open", client.at(name))
            writer.begin("put_until_gate", "killed", _VALUE)
            deadline = time.monotonic() + 60
            while not os.listdir(staged) and time.monotonic() < deadline:
                time.sleep(0.001)
            writer.kill()
        time.sleep(_UNDER_WAY_SECONDS)  # until the server has done its last requests, such as a rename
        if left := len(os.listdir(staged)):
            return left
    return 0
