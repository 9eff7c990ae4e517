# SPDX-License-Identifier: Apache-2.0
"""The plan of one run: the same for the parent and for every worker, and small enough to be sent to a spawned process.

The seed replays a run: all choices of keys, sizes and operations are drawn from it. The interleaving is not replayed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any, Final

from lockcache_stress.processes import MOST_STRETCHED

MIB = 1024 * 1024

#: The time that a run may add to its own, of :class:`.Patience`, where it was too short to prove anything.
OVERTIME_SECONDS = 10.0

#: The counters that must not be zero in any run, which would prove nothing otherwise.
ALWAYS_NEEDED: Final = ("operations", "hits", "puts")

#: One operation of a worker; ``False`` when it has nothing more to do.
Step = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class _Conditions:
    """The conditions that a scenario sets for each of its runs."""

    #: Whether workers are stopped now and then to count the bytes on the disk.
    samples: bool = True
    #: The names of checks that are only reported here, because the scenario breaks their conditions.
    excused: tuple[str, ...] = ()
    #: Counters that must not be zero, with their names in the verdict. A run is prolonged for them, up to a limit.
    must_happen: Mapping[str, str] = field(default_factory=dict)
    #: Counters that must not be zero either, but have checks of their own, or none.
    needs: tuple[str, ...] = ()
    #: Whether one ``recount()`` has to come before the accounting is compared with the disk.
    recounts_first: bool = False
    #: Whether a miss may mean that the disk gave no answer, so that misses are not judged.
    misses_tell_nothing: bool = False
    #: Settings of this scenario alone. ``cache``: options of the cache that every worker opens; ``damages``: whether
    #: entries are damaged on purpose; ``hot_keys``: how many of the first keys are in use all the time;
    #: ``longest_wait_seconds``: the longest time that a caller may wait for others; ``mpi``: whether workers are ranks.
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan(_Conditions):
    """One run of one scenario."""

    scenario: str
    processes: int
    seconds: float
    seed: int
    max_size_bytes: int
    #: The cache under test.
    directory: str
    #: The folder of files that the processes share: register, counters, findings, references.
    control: str
    keys: int
    #: The number of legal contents of a key; 1 where each value proves by itself which write it is.
    variants: int = 1
    #: The number of writer numbers: more than ``processes`` if killed workers are replaced.
    writers: int = 0
    #: Makes a worker's step; a function at the top of its module, so that a spawned process finds it.
    make_step: Callable[[Any], Step] | None = None
    #: Whether the cap is set by an operator (the daemon) and not by the workers, which open the cache.
    cap_from_daemon: bool = False
    #: The fault to plant, which a check has to find.
    plant: str | None = None
    #: Whether to end at the first finding.
    fail_fast: bool = False

    @property
    def columns(self) -> int:
        """The number of writers for which the shared tables have room."""
        return max(self.writers, self.processes)

    @property
    def token(self) -> bytes:
        """The eight bytes by which this run's values and keys differ from those of other runs in the same directory."""
        text = f"{self.scenario}/{self.seed}/{self.control}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    def latest_stop_us(self) -> int:
        """Returns the time at which workers that begin now end by themselves, because their parent must be dead."""
        return now_us() + int((self.seconds + 2 * MOST_STRETCHED * OVERTIME_SECONDS) * 1e6)

    def key(self, index: int) -> bytes:
        """Returns the cache key number ``index`` of the plain byte scenarios."""
        return b"lockcache-stress/%b/%d" % (self.token.hex().encode(), index)


@dataclass(frozen=True)
class Scenario(_Conditions):
    """A scenario, for the command line and for ``all``."""

    name: str
    help: str
    make_step: Callable[[Any], Step]
    processes: int
    max_size_bytes: int
    keys: int
    #: The least number of processes: with fewer, a role is missing, and the scenario proves nothing.
    least_processes: int = 1
    #: The number of further keys for each process.
    keys_each: int = 0
    #: The number of SIGKILLs, spread over the run.
    kills: int = 0
    #: The number of daemons on the directory, which stand by for one another and are killed and replaced all the time.
    daemons: int = 0
    #: Whether workers end by themselves, when their work is done; ``seconds`` is then only a limit.
    ends_by_itself: bool = False
    #: Whether to mount a tmpfs for the directory (root only), so that statvfs sees every byte at once.
    wants_own_mount: bool = False
    #: The number of further writer numbers of each process, for its threads and children.
    writers_each: int = 0
    #: Makes the place that the scenario needs (a small disk, a mount that fails) at a path, with the seed, until the
    #: block ends. Raises :class:`UnusableError` where the place cannot be had.
    place: Callable[[str, int], AbstractContextManager[object]] | None = None
    #: Returns why the scenario cannot be run here; ``None`` if it can.
    why_not: Callable[[], str | None] = lambda: None
    #: The checks of this scenario, in addition to those of all scenarios.
    checks: Callable[[Any], list[Any]] = lambda outcome: []

    def conditions(self) -> dict[str, Any]:
        """Returns the conditions of each of its runs, by the names that a :class:`Plan` has for them."""
        return {each.name: getattr(self, each.name) for each in fields(_Conditions)}


def now_us() -> int:
    """Returns the microseconds on the clock that all processes of the machine share."""
    return time.monotonic_ns() // 1000
