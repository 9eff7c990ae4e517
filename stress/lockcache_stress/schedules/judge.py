# SPDX-License-Identifier: Apache-2.0
"""The judgement of a schedule: what every order of the operations must leave true.

Last write wins and wholeness: the reads of each key, with one more at the end, are those of a register, which loses its
value only where somebody evicts, by a search for an order of the operations that explains them. The cap and the
accounting: the bytes on disk are at most the cap and at most what the page says, after every call. If nobody died, the
page is exact at the end; else one recount makes it exact, and leaves nothing of the dead. No victim was used since it
was chosen, and nobody removes what a living process has staged. Nobody waits: no operation sleeps for long by the
explorer's clock, no write is dropped, and one process computes a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from lockcache.filestream.accounting import NOT_COUNTED, bytes_in, decode_head, read_state
from lockcache.lowlevel import CacheDirectory, entry_name, recount_shard
from lockcache_stress.schedules.directory import Workplace
from lockcache_stress.schedules.operations import FARTHER, KEY, NAMES, NEW, SHARD, WIDE, lower_cap, name_of
from lockcache_stress.schedules.process import Process
from lockcache_stress.schedules.running import Looked, Ran

_BLOCK: Final = 4096
# The page's head and its slots.
_COUNTED_BYTES: Final = 8192
# A page that is being replaced, which nobody accounts for.
_OWN_FILE: Final = "00.0."
#: By the explorer's clock, all sleeps of one operation. What a dead writer left is too young for a reap for one second.
LONGEST_SECONDS: Final = 2.0
_LAST: Final = 1 << 40
_STAGED: Final = re.compile(r"tmp/[0-9a-f.]+\.p([0-9])\.[0-9a-f]+")
_NAME: Final = entry_name(KEY)
# A waiter that its bell wakes looks some ten times in a second.
_MOST_LOOKS: Final = 40


def image_of(place: Workplace) -> tuple[dict[str, int], bytes]:
    """Returns the lengths of files, and what the state page says of bytes: see :class:`.Looked`."""
    return disk_files(place), read_state(place.layout)[:_COUNTED_BYTES]


def look(place: Workplace, processes: Sequence[Process], image: tuple[dict[str, int], bytes]) -> Looked:
    """Returns the directory behind a call that changed it, and what is wrong there."""
    return Looked(_wrong(place, processes, sum(map(_blocks, image[0].values())), image[1]), *image)


def _wrong(place: Workplace, processes: Sequence[Process], held: int, image: bytes) -> str:
    if place.begin.is_missing:
        return ""
    is_counted, counted = _stated_in(image)
    if not is_counted:
        return ""  # a page that nobody accounts on yet: all wait for the next one
    if counted < held:
        return f"the page says {held - counted:,} bytes too little"
    if place.cap is None:
        return ""
    ends = [event["end"] for process in processes for event in process.events if event["kind"] == "cap"]
    cap = lower_cap(place.cap) if any(end is not None for end in ends) else place.cap
    return f"{held:,} bytes on disk, over the cap of {cap:,}" if held > cap else ""


@lru_cache(maxsize=256)
def _stated_in(image: bytes) -> tuple[bool, int]:
    head = decode_head(image)
    return head is None or head.folder < NOT_COUNTED, bytes_in(image)


def disk_bytes(place: Workplace) -> int:
    """Returns the bytes of entries and staged files, in blocks."""
    return sum(map(_blocks, disk_files(place).values()))


def disk_files(place: Workplace) -> dict[str, int]:
    """Returns the lengths of entries, records and staged files, by their paths below the root."""
    found: dict[str, int] = {}
    for folder in (place.layout.tmp, place.layout.entries, place.layout.records):
        with suppress(FileNotFoundError):
            _measure_below(folder, len(place.root) + 1, found)
    return found


def _measure_below(folder: str, skipped: int, found: dict[str, int]) -> None:
    with os.scandir(folder) as listed:
        for each in listed:
            if each.is_dir(follow_symlinks=False):
                _measure_below(each.path, skipped, found)
            elif not each.name.startswith(_OWN_FILE):
                found[each.path[skipped:]] = each.stat(follow_symlinks=False).st_size


def _blocks(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK


def judge(place: Workplace, ran: Ran, names: Sequence[str]) -> list[str]:
    """Returns what is wrong at the end of a run."""
    wrong = list(ran.wrong)
    failed = [process for process in ran.processes if process.error]
    wrong += [f"process {process.number} failed: {process.error.splitlines()[-1]}" for process in failed]
    if wrong:
        return wrong
    events = [event for process in ran.processes for event in process.events]
    longest = max((event.get("seconds", 0.0) for event in events), default=0.0)
    if longest > LONGEST_SECONDS:
        wrong.append(f"an operation waited for {longest:.1f} s")
    # One that is larger than the lowered cap has to be.
    if any(event["kind"] == "dropped" and event["key"] != NAMES[WIDE] for event in events):
        wrong.append("a write was dropped")
    wrong += _judge_computations(ran, events)
    wrong += _judge_looks(ran, names)
    wrong += _judge_evictions(ran, events) + _judge_reaps(ran)
    if not any(process.is_dead for process in ran.processes) and not place.begin.has_dead:
        drift = bytes_in(read_state(place.layout)) - disk_bytes(place)
        if drift:
            wrong.append(f"nobody died, and the page is wrong by {drift:,} bytes")
    wrong += _judge_directory(place, ran, events, may_vanish=place.cap is not None)
    return wrong


def _judge_looks(ran: Ran, names: Sequence[str]) -> list[str]:
    """Returns whether a process that waits for a slow computation looks too often: each look costs processor time."""
    if "slow-lease" not in names:
        return []
    most = max(sum(call is None for number, call, _ in ran.calls if number == each.number) for each in ran.processes)
    return [f"a process slept {most} times in a second"] if most > _MOST_LOOKS else []


def _judge_evictions(ran: Ran, events: Sequence[dict[str, Any]]) -> list[str]:
    """Returns whether an entry was evicted though it was used since it was chosen.

    A use that has ended before its second look is seen by that: then others go, which are older.
    """
    looked = dict[int, int]()
    path = os.path.join("entries", _NAME[:2], _NAME[2:])
    uses = [each for each in events if each["key"] == NAMES[KEY] and each["kind"] in ("get", "put") and each["value"]]
    for step, (number, call, _) in enumerate(ran.calls):
        if call is None or path not in call.paths:
            continue
        if call.name == "stat":
            looked[number] = step
        if call.name != "unlink" or any(each["kind"] == "remove" and each["number"] == number for each in events):
            continue
        since = looked.get(number, step)
        if any(use["number"] != number and use["end"] is not None and use["end"] < since for use in uses):
            return [f"evicted at step {step}, though it was used since it was chosen"]
    return []


def _judge_reaps(ran: Ran) -> list[str]:
    """Returns whether a process removed what another one had staged and still worked on."""
    last = {number: step for step, (number, _, _) in enumerate(ran.calls)}
    for step, (number, call, _) in enumerate(ran.calls):
        match = None if call is None or call.name != "unlink" else _STAGED.fullmatch(call.paths[0])
        if match and (owner := int(match[1])) != number and last[owner] > step and not ran.processes[owner].is_dead:
            return [f"at step {step} process {number} removed what process {owner} had staged"]
    return []


def _judge_computations(ran: Ran, events: Sequence[dict[str, Any]]) -> list[str]:
    leases = [event for event in events if event["kind"] == "lease"]
    computed = sum(event.get("computed", 0) for event in leases if not event.get("failed"))
    disturbed = any(process.is_dead for process in ran.processes) or any(event.get("failed") for event in leases)
    removed = any(event["kind"] in ("remove", "dropped") for event in events)
    if computed > 1 and not disturbed and not removed:
        return [f"{computed} processes computed the same key"]
    return []


def _judge_directory(place: Workplace, ran: Ran, events: list[dict[str, Any]], *, may_vanish: bool) -> list[str]:
    wrong = []
    with place.open() as cache:
        for key in (KEY, NEW, FARTHER, WIDE):
            last = {
                "kind": "get",
                "key": NAMES[key],
                "value": name_of(cache.get_entry(key)),
                "start": _LAST,
                "end": _LAST,
            }
            ran.last[NAMES[key]] = str(last["value"])
            mine = [event for event in events if event["key"] == NAMES[key]] + [last]
            if any(event["value"] == "torn" for event in mine if event["kind"] in ("get", "lease")):
                wrong.append(f"what is served under {NAMES[key]} is not what anybody stored")
            elif not is_explained(mine, "older" if key == KEY and place.begin.has_older else "", may_vanish=may_vanish):
                wrong.append(f"the reads of {NAMES[key]} have no order: {_in_words(mine)}")
    directory = CacheDirectory(place.root, 1.0)
    try:
        for shard in used_shards(place, directory):
            recount_shard(directory, shard)
        drift = directory.usage().total_bytes() - disk_bytes(place)
        left = os.listdir(place.layout.tmp)
    finally:
        directory.close()
    if drift or left:
        wrong.append(f"after one recount the page is wrong by {drift:,} bytes, and {len(left)} staged files are left")
    return wrong


def used_shards(place: Workplace, directory: CacheDirectory) -> list[int]:
    """Returns the shards for which anything is accounted, or staged."""
    counted = {number for number, slot in enumerate(directory.usage().slots()) if slot.bytes}
    staged = {int(name[:2], 16) for name in os.listdir(place.layout.tmp)}
    return sorted({SHARD} | counted | staged)


def _in_words(events: Sequence[dict[str, Any]]) -> str:
    return "; ".join(
        f"{event['kind']} {event['value'] or 'nothing'} at {event['start']} to {event['end']}"
        for event in sorted(events, key=lambda event: event["start"])
    ).replace(str(_LAST), "the end")


def is_explained(events: Sequence[dict[str, Any]], first: str, *, may_vanish: bool) -> bool:
    """Returns whether an order of the operations, each within its time, explains all that was read.

    What a process that died had begun may have happened or not. ``may_vanish``: a value may be gone at any time,
    because somebody evicts.
    """
    operations = [
        each for event in events for each in _operations(event) if each[1] or each[0] == "put" or not may_vanish
    ]
    return _search(operations, frozenset(range(len(operations))), first, set())


def _operations(event: dict[str, Any]) -> list[tuple[str, str, int, int, bool]]:
    """Returns (kind, value, start, end, whether it may not have happened) for what an event may be."""
    kind, start, end = event["kind"], event["start"], event["end"]
    is_dead = end is None
    last = event.get("died", _LAST) if is_dead else end
    if kind == "get":
        return [] if is_dead else [("get", event["value"], start, last, False)]
    if kind == "put":
        return [("put", event["value"], start, last, is_dead)]
    if kind == "remove" or kind == "dropped":
        return [("put", "", start, last, is_dead)]
    if kind != "lease":
        return []
    number = event.get("number")
    found: list[tuple[str, str, int, int, bool]] = []
    if number is not None:
        found.append(("put", f"key-{number}", start, last, True))
    if not is_dead and event["value"]:
        found.append(("get", event["value"], start, last, False))
    return found


def _search(
    operations: Sequence[tuple[str, str, int, int, bool]],
    left: frozenset[int],
    value: str,
    seen: set[tuple[frozenset[int], str]],
) -> bool:
    if not left:
        return True
    if (left, value) in seen:
        return False
    seen.add((left, value))
    first_end = min(operations[number][3] for number in left)
    for number in left:
        kind, its, start, _, may_not = operations[number]
        if start > first_end:
            continue  # another one had ended before it began
        rest = left - {number}
        if kind == "put" and _search(operations, rest, its, seen):
            return True
        if kind == "get" and its == value and _search(operations, rest, value, seen):
            return True
        if may_not and _search(operations, rest, value, seen):
            return True
    return False
