# SPDX-License-Identifier: Apache-2.0
"""A client without network for longer than the server's lease, while it computes and while it writes.

The server gives the client's opens and locks away meanwhile. The calls of its processes must end all the same: each
caller gets its code, and no call raises an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank, RankFailedError
from lockcache_stress.hosts.guest.site import GRACE_SECONDS, Site

__all__ = ["cut"]

_VALUE: Final = os.urandom(200_000)
_CODE: Final = b"the code of the host that was cut off"
_CUT_SECONDS: Final = 2.2 * GRACE_SECONDS


def cut(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield how each process ended that was cut off, and how the other host's process did that waited for one."""
    first, second = site.clients
    name = site.make("cut")
    with Rank(first) as late, Rank(first) as early, Rank(first) as writer, Rank(second) as waiter:
        for rank in (late, early, writer, waiter):
            rank.call("open", rank.client.at(name))
        early.begin("compute", "early", _CODE, at_gate=True)
        site.wait_for_lease(name)
        late.begin("compute", "late", _CODE, at_gate=True)
        writer.begin("put_until_gate", "written", _VALUE)
        time.sleep(2)  # by then the second process has its lease, and writes have begun
        waiter.begin("compute", "late", b"the other host's")
        first.cut()
        began = time.monotonic()
        early.gate.set()
        time.sleep(_CUT_SECONDS)  # the silence that is tried
        took_over = waiter.has_answered()
        first.heal()
        late.gate.set()
        writer.gate.set()
        yield "cut_seconds", round(time.monotonic() - began, 1)
        yield "taken_over_meanwhile", took_over
        yield "computed before the network was back", _ended(early, "compute")
        yield "computed after it was back", _ended(late, "compute")
        yield "wrote all along", _ended(writer, "write")
        yield "waited on the other host", _ended(waiter, "compute")
        yield "reads afterwards", _ended(late, "read", "late")


def _ended(rank: Rank, what: str, key: str = "") -> dict[str, Any]:
    """Returns the request to a rank and its result, or the last line of its exception."""
    try:
        answer = rank.call("get", key) if what == "read" else rank.result()
    except RankFailedError as error:
        return {"what": what, "raised": str(error).strip().splitlines()[-1], "traceback": str(error)}
    if what == "compute":
        return {"what": what, "has_code": answer[0] in (_CODE, b"the other host's"), "computed": answer[1]}
    return {"what": what, "gave": len(answer or b"") if what == "read" else answer}
