"""One process that uses a framework's kernels: first fills the directory, then asks for one kernel after the other.

What the process remembers is dropped before each use, so that each asks the directory, from which the daemon removes
what was not used for longest. What is wrong or raises is counted and said, and ends nobody.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Final

from lockcache.integrations.adapter import installed
from lockcache_stress.experiments.gpu_kit.frameworks import KERNELS, Framework, Kernels, expected
from lockcache_stress.processes import die_with_parent
from lockcache_stress.run import take_turn
from lockcache_stress.zipf import Zipf

__all__ = ["SharedAnswer", "SharedTask", "Use", "Used", "run_shared_user", "run_user"]

_MOST_FINDINGS: Final = 5
_SKEW: Final = 0.8


@dataclass(frozen=True)
class Use:
    """What all processes of a framework's row do."""

    framework: Framework
    directory: str
    seconds: float
    seed: int


@dataclass
class Used:
    """What one process says."""

    uses: int = 0
    wrong: int = 0
    #: By the error's name.
    raised: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    place: str = ""
    #: What kept it from running anything.
    error: str = ""


@dataclass(frozen=True)
class SharedTask:
    """What all processes of a row on lockcache do."""

    framework: Framework
    directory: str
    seed: int


@dataclass
class SharedAnswer:
    """What one process says of one phase."""

    uses: int = 0
    wrong: int = 0
    #: Of its cache, in this phase.
    hits: int = 0
    compiled: int = 0
    entries: int = 0
    place: str = ""
    error: str = ""
    findings: list[str] = field(default_factory=list)


def run_user(use: Use, index: int, parent: Connection, gates: list[Connection]) -> None:
    """A process from start to end. The first fills the directory; then all use it until the time is over."""
    die_with_parent()
    filling, using = gates
    take_turn(parent, filling)
    used, kernels = Used(), None
    try:
        kernels = use.framework.open(use.directory)
        used.place = kernels.place
        for number in range(KERNELS if index == 0 else 0):
            _run(kernels, number, used)
    except Exception as error:  # noqa: BLE001  a framework that does not run here is said, and its row is not run
        used.error = f"{type(error).__name__}: {error}".partition("\n")[0]
    parent.send(used)
    take_turn(parent, using)
    if kernels is not None and not used.error:
        used = _use_until(kernels, use, index)
    parent.send(used)


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
            _say(used, f"process {index}, kernel {number}: {traceback.format_exc(limit=-4)}")
            used.uses += 1
    return used


def _run(kernels: Kernels, number: int, used: Used) -> None:
    found = kernels.run(number)
    used.uses += 1
    if found != expected(number):
        used.wrong += 1
        _say(used, f"kernel {number} computed {found[:3]}..., must be {expected(number)[:3]}...")


def _say(used: Used, text: str) -> None:
    if len(used.findings) < _MOST_FINDINGS:
        used.findings.append(text)


def run_shared_user(task: SharedTask, index: int, parent: Connection, gates: list[Connection]) -> None:
    """A process that uses all kernels on lockcache, twice: with an empty directory, and when all is there."""
    die_with_parent()
    answer, kernels = SharedAnswer(), None
    adapter = task.framework.adapter
    try:
        kernels = task.framework.open(os.path.join(os.path.dirname(task.directory), f"own-{index}"))
        kernels.run(KERNELS)  # one more than are counted: whether it runs here at all, by itself
        if not import_module(f"lockcache.integrations.{adapter}").install(task.directory):
            answer.error = "its adapter could not be installed: the warning says why"
    except Exception as error:  # noqa: BLE001  a framework that does not run here is said, and its row is not run
        answer.error = f"{type(error).__name__}: {error}".partition("\n")[0]
    for phase, gate in enumerate(gates):
        take_turn(parent, gate)
        if kernels is not None and not answer.error:
            answer = SharedAnswer(place=kernels.place)
            try:
                _use_all(kernels, random.Random(f"{task.seed}/{index}/{phase}"), answer, adapter)
            except Exception as error:  # noqa: BLE001  it fails the row, and ends nobody
                answer.findings.append(f"process {index}: {type(error).__name__}: {error}")
        parent.send(answer)


def _use_all(kernels: Kernels, rng: random.Random, answer: SharedAnswer, adapter: str) -> None:
    shared = installed(adapter)
    if shared is None:
        raise LookupError(f"the adapter of {adapter} is gone")
    before = shared.cache.stats()
    kernels.forget()
    for number in rng.sample(range(KERNELS), KERNELS):
        answer.uses += 1
        if kernels.run(number) != expected(number):
            answer.wrong += 1
    after = shared.cache.stats()
    answer.hits, answer.compiled = after.hits - before.hits, after.puts - before.puts
    answer.entries = after.entries
    if shared.has_failed:
        answer.findings.append("the adapter gave the framework its own cache back")
