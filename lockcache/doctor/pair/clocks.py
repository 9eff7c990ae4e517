# SPDX-License-Identifier: Apache-2.0
"""Clocks and wake-ups: how far the clocks of the two are apart, and whether a FIFO joins them."""

from __future__ import annotations

import time
from typing import Final

from lockcache.doctor.files import SKEW_SECONDS
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, Finding
from lockcache.doctor.pair.messages import Numbers
from lockcache.doctor.pair.trial import Side, Trial, span_of
from lockcache.filestream.disk import Waiter, ring

# ---- clocks: the answer was written between the question and its arrival ---------------------------------------------

_ROUNDS: Final = 5
_UNKNOWN_NS: Final = 2**62


def _ask_time(side: Side) -> Numbers:
    least, most = -_UNKNOWN_NS, _UNKNOWN_NS
    for _ in range(_ROUNDS):
        asked = time.time_ns()
        side.sync()
        theirs = side.link.exchange().get("now", 0)
        least, most = max(least, theirs - time.time_ns()), min(most, theirs - asked)
    return {"least_ns": least, "most_ns": most}


def _tell_time(side: Side) -> Numbers:
    for _ in range(_ROUNDS):
        side.sync()
        side.link.exchange({"now": time.time_ns()})
    return {}


def _judge_clocks(seen: list[Numbers]) -> Finding:
    # The second's clock against the first's; asked the other way round it is the reverse.
    least = max(seen[0].get("least_ns", -_UNKNOWN_NS), -seen[1].get("most_ns", _UNKNOWN_NS)) / 1e9
    most = min(seen[0].get("most_ns", _UNKNOWN_NS), -seen[1].get("least_ns", -_UNKNOWN_NS)) / 1e9
    measured = {"least_seconds": round(least, 6), "most_seconds": round(most, 6)}
    found = f"the second host's is between {least:+.3f} s and {most:+.3f} s off the first's"
    if least <= SKEW_SECONDS and most >= -SKEW_SECONDS:
        return Finding("clocks", GOOD, found, measured=measured)
    means = "uses by the two are not in their order, and --max-age and the age of abandoned files are misjudged"
    return Finding("clocks", DEGRADED, found, means, "synchronise the clocks of both (NTP)", measured)


# ---- wake-ups --------------------------------------------------------------------------------------------------------


def _wake(side: Side) -> Numbers:
    side.sync()  # the other host listens
    ring(side.layout, side.at("bell"))
    side.sync()
    return {}


def _listen(side: Side) -> Numbers:
    waiter = Waiter(side.layout, side.at("bell"))
    waiter.listen()
    side.sync()
    start = time.monotonic()
    is_woken = False
    while not is_woken and time.monotonic() < start + side.limit_seconds:
        is_woken = waiter.sleep(start + side.limit_seconds)
    took_us = int((time.monotonic() - start) * 1e6)
    side.sync()
    return {"woken": is_woken, "woken_us": took_us}


def _judge_waking(seen: list[Numbers]) -> Finding:
    woken = [bool(numbers.get("woken")) for numbers in seen]
    measured = {"woken": sum(woken)}
    if all(woken):
        found = f"a FIFO wakes the other host, after {span_of(max(numbers.get('woken_us', 0) for numbers in seen))}"
        return Finding("wake-ups", GOOD, found, measured=measured)
    found = "a FIFO does not wake the other host, as is to be expected"
    means = "a process that waits for another host's compilation or for room polls, and less often than on one host"
    return Finding("wake-ups", NOTE, found, means, measured=measured)


CLOCKS: Final = Trial(_ask_time, _tell_time, _judge_clocks)
WAKING: Final = Trial(_wake, _listen, _judge_waking)
