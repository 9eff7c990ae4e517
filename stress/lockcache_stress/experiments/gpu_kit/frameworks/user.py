# SPDX-License-Identifier: Apache-2.0
"""One process that uses a framework's kernels: first fills the directory, then asks for one kernel after the other.

The process drops the kernels in its memory before each use, so that each use asks the directory, from which the daemon
evicts the least recently used kernels. On lockcache, by the adapter, the process asks for all kernels twice: with an
empty directory, and when all are stored. Wrong results and errors are counted and reported, and end no process.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Final

from lockcache.integrations.adapter import installed
from lockcache_stress.experiments.gpu_kit.frameworks.kernels import KERNELS, Framework, Kernels, expected
from lockcache_stress.processes import die_with_parent, take_turn
from lockcache_stress.zipf import Zipf

_MOST_FINDINGS: Final = 5
_SKEW: Final = 0.8


@dataclass(frozen=True)
class Use:
    """The work of the processes of a framework's row."""

    framework: Framework
    directory: str
    seconds: float
    seed: int


@dataclass
class Used:
    """The answer of one process for one phase."""

    uses: int = 0
    wrong: int = 0
    #: The errors, by their names.
    raised: Counter[str] = field(default_factory=Counter)
    #: The hits of its cache on lockcache.
    hits: int = 0
    compiled: int = 0
    entries: int = 0
    findings: list[str] = field(default_factory=list)
    place: str = ""
    #: The error because of which it ran no kernel; empty without one.
    error: str = ""

    def say(self, text: str) -> None:
        """Note a finding, unless too many were noted already."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(text)


def run_user(use: Use, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Run a process that uses the framework's own directory. The first fills it; then all use it for their time."""

    def fill(kernels: Kernels, used: Used) -> None:
        for number in range(KERNELS if index == 0 else 0):
            _run(kernels, number, used)

    die_with_parent()
    filling, using = gates
    take_turn(parent, filling)
    kernels, used = _open(use.framework, use.directory, fill)
    parent.send(used)
    take_turn(parent, using)
    parent.send(used if kernels is None else _use_until(kernels, use, index))


def run_shared_user(use: Use, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Run a process that uses all kernels on lockcache, once in each phase."""
    adapter = use.framework.adapter

    def install(kernels: Kernels, used: Used) -> None:
        kernels.run(KERNELS)  # a kernel beyond those that are counted shows whether any can run here
        if not import_module(f"lockcache.integrations.{adapter}").install(use.directory):
            raise LookupError("its adapter could not be installed: the warning says why")

    die_with_parent()
    kernels, used = _open(use.framework, os.path.join(os.path.dirname(use.directory), f"own-{index}"), install)
    for phase, gate in enumerate(gates):
        take_turn(parent, gate)
        if kernels is not None:
            used = Used(place=kernels.place)
            try:
                _use_all(kernels, random.Random(f"{use.seed}/{index}/{phase}"), used, adapter)
            except Exception as error:  # noqa: BLE001  it fails the row, and ends nobody
                used.say(f"process {index}: {type(error).__name__}: {error}")
        parent.send(used)


def _open(framework: Framework, directory: str, begin: Callable[[Kernels, Used], None]) -> tuple[Kernels | None, Used]:
    """Returns the framework, opened and tried by ``begin``; ``None``, and the error, if it does not run here."""
    used = Used()
    try:
        kernels = framework.open(directory)
        used.place = kernels.place
        begin(kernels, used)
    except Exception as error:  # noqa: BLE001  a framework that does not run here is said, and its row is not run
        used.error = f"{type(error).__name__}: {error}".partition("\n")[0]
        return None, used
    return kernels, used


def _use_until(kernels: Kernels, use: Use, index: int) -> Used:
    used, deadline = Used(place=kernels.place), time.monotonic() + use.seconds
    zipf = Zipf(random.Random(f"{use.seed}/{use.framework.name}/{index}"), KERNELS, _SKEW)
    while time.monotonic() < deadline or not used.uses:
        number = zipf.draw()
        kernels.forget()
        try:
            _run(kernels, number, used)
        except Exception as error:  # noqa: BLE001  counted by name, and judged by who knows which it may raise
            used.raised[type(error).__name__] += 1
            used.say(f"process {index}, kernel {number}: {traceback.format_exc(limit=-4)}")
            used.uses += 1
    return used


def _use_all(kernels: Kernels, rng: random.Random, used: Used, adapter: str) -> None:
    shared = installed(adapter)
    if shared is None:
        raise LookupError(f"the adapter of {adapter} is gone")
    before = shared.cache.stats()
    kernels.forget()
    for number in rng.sample(range(KERNELS), KERNELS):
        _run(kernels, number, used)
    after = shared.cache.stats()
    used.hits, used.compiled, used.entries = after.hits - before.hits, after.puts - before.puts, after.entries
    if shared.has_failed:
        used.say("the adapter gave the framework its own cache back")


def _run(kernels: Kernels, number: int, used: Used) -> None:
    found = kernels.run(number)
    used.uses += 1
    if found != expected(number):
        used.wrong += 1
        used.say(f"kernel {number} computed {found[:3]}..., must be {expected(number)[:3]}...")
