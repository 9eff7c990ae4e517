# SPDX-License-Identifier: Apache-2.0
"""The operations whose power cuts are tried, and the faults that are planted to see that a cut finds them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from lockcache.filestream.entry import staging
from lockcache_stress.crash_states.checks import Case, Cuts, change_policy, count_again, stored, try_cuts
from lockcache_stress.processes import start_pool
from lockcache_stress.run import Show
from lockcache_stress.schedules import FAR, FARTHER, KEY, NEAR, NEW, Begin, lower_cap, workplace
from lockcache_stress.trouble import BUGS

_OLDER: Final = Begin(has_older=True)
#: Every operation, by name.
CASES: Final = {
    "put": Case("a put of the first key of a shard", Begin(), stored(FARTHER), (FARTHER,)),
    "replace": Case("a put over an older entry", _OLDER, stored(KEY), (KEY,)),
    "evict": Case(
        "a put into a full cache, which evicts",
        Begin(has_older=True, is_full=True),
        stored(NEW),
        (NEW,),
        (KEY, *NEAR, FAR),
    ),
    "record": Case(
        "a put over an older entry, with record files",
        Begin(has_older=True, has_record_files=True),
        stored(KEY),
        (KEY,),
    ),
    "cap": Case(
        "an operator sets a smaller cap",
        Begin(has_older=True, is_full=True),
        lambda cache: change_policy(cache, lower_cap(cache.max_size_bytes)),
        may_go=(KEY, *NEAR, FAR),
        cap=lower_cap,
    ),
    "count": Case("the page is counted again, and replaced", _OLDER, count_again),
}


class PlantedCut(NamedTuple):
    """A fault, and the case, promise and fsync by which it is found."""

    help: str
    #: Breaks the library before the operation, and before the check.
    plant: Callable[[], None]
    case: str
    promise: str
    fsync: bool


def _no_digest() -> None:
    plant = BUGS["no-digest"].plant
    if plant is not None:
        plant()


def _no_folder_sync() -> None:
    vars(staging)["fsync_folder_of"] = lambda *_: None


#: Faults that a cut shows.
PLANTED_CUTS: Final = {
    "no-digest": PlantedCut("what is read is not checked against its digest", _no_digest, "replace", "journal", False),
    "no-folder-sync": PlantedCut("the folder of an entry is not synced", _no_folder_sync, "put", "posix", True),
}


def _try(given: tuple[str, str, bool, str]) -> Cuts:
    name, promise, fsync, fault = given
    logging.getLogger("lockcache").setLevel(logging.CRITICAL)  # each hollow entry logs a warning
    plant = PLANTED_CUTS[fault].plant if fault else None
    if plant is not None:
        plant()
    with workplace() as root:
        return try_cuts(name, CASES[name], promise, root, fsync=fsync)


def try_all(ways: Sequence[tuple[str, str, bool]], jobs: int, show: Show, fault: str = "") -> Iterator[Cuts]:
    """Try all power cuts of these cases, several at once."""
    states = 0
    with start_pool(jobs) as pool:
        given = [(*way, fault) for way in ways]
        for number, found in enumerate(pool.imap_unordered(_try, given), 1):
            states += found.states
            show("crash-states", number / len(given), f"{states:,} states, {found.name}")
            yield found
