# SPDX-License-Identifier: Apache-2.0
"""Proofs by scenarios in other surroundings: with a planted bug, which has to be found, and on other file systems.

Every bug that can be planted into the library is planted, and its scenario has to find it; the byte scenarios run on
real file systems of every kind that can be mounted here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.plan import Scenario
from lockcache_stress.run import Options, Outcome, Show, run_bytes
from lockcache_stress.scenarios import BYTE_SCENARIOS, TROUBLE_SCENARIOS
from lockcache_stress.trouble import BUGS, Fault, mounted_image, needs_mounts, run_quietly, small_disk, unmount

_SCENARIOS: Final = {scenario.name: scenario for scenario in (*BYTE_SCENARIOS, *TROUBLE_SCENARIOS)}
# The longest run that looks for a bug, unless longer ones are asked for.
_LONGEST_SECONDS: Final = 32.0


def possible_bugs() -> tuple[str, ...]:
    """Returns the names of the bugs whose scenario can be run here; some scenarios need root."""
    return tuple(name for name, bug in BUGS.items() if _SCENARIOS[bug.scenario].why_not() is None)


@dataclass(frozen=True)
class Proven:
    """The result of one planted bug."""

    name: str
    bug: Fault
    #: The checks that failed.
    failed: list[str]

    @property
    def is_found(self) -> bool:
        """Whether the check that is meant for the bug found it, and not another one by accident."""
        return any(name in self.bug.found_by for name in self.failed)

    def as_json(self) -> dict[str, object]:
        """Returns the output of ``--json``."""
        return {"bug": self.name, "found": self.is_found, "failed_checks": self.failed}


def prove(names: tuple[str, ...], seconds: float, seed: int, show: Show) -> Iterator[Proven]:
    """Plant each bug in the scenario that has to find it, and run the scenario. Yields the results one by one.

    A scenario that does not find it runs again for twice as long: on a busy machine little happens in ``seconds``.
    """
    for name in names:
        proven, longer = _run_planted(name, seconds, seed, show), 2 * seconds
        while not proven.is_found and longer <= _LONGEST_SECONDS:
            proven, longer = _run_planted(name, longer, seed, show), 2 * longer
        yield proven


def _run_planted(name: str, seconds: float, seed: int, show: Show) -> Proven:
    bug = BUGS[name]
    scenario = _SCENARIOS[bug.scenario]
    options = Options(scenario.processes, seconds, scenario.max_size_bytes, seed, plant=name)
    outcome = run_bytes(scenario, options, show)
    return Proven(name, bug, [check.name for check in outcome.checks() if not check.ok])


@contextmanager
def _overlay(path: str) -> Iterator[None]:
    """Mount an overlay as a container has it: an upper layer over one that is read-only."""
    layers = f"{path}-layers"
    os.mkdir(layers)
    try:
        with small_disk(layers, size="256m"):
            lower, upper, work = (os.path.join(layers, name) for name in ("lower", "upper", "work"))
            for folder in (lower, upper, work):
                os.mkdir(folder, 0o700)
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            run_quietly("mount", "-t", "overlay", "-o", options, "lockcache-stress", path)
            try:
                yield
            finally:
                unmount(path)
    finally:
        os.rmdir(layers)


#: The functions that mount each at a path. The sizes are the smallest that mkfs makes and the scenarios fit into.
FILE_SYSTEMS: Final[dict[str, Callable[[str], AbstractContextManager[object]]]] = {
    "ext4": lambda path: mounted_image(path, "ext4", 128),
    "xfs": lambda path: mounted_image(path, "xfs", 320),
    "btrfs": lambda path: mounted_image(path, "btrfs", 256, "-q"),
    "tmpfs": lambda path: small_disk(path, size="256m"),
    "overlayfs": _overlay,
}


@dataclass
class Tried:
    """One file system, and the scenarios that ran on it so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    #: The reason why the file system could not be had.
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        """Whether no scenario that ran found anything wrong."""
        return all(outcome.ok for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"ok": self.ok, "skipped": self.skipped, "scenarios": [each.as_json() for each in self.outcomes]}


def try_on(name: str, scenarios: Sequence[Scenario], seconds: float, seed: int, tried: Tried, show: Show) -> None:
    """Mount the file system of this name and run each scenario on it for so long; ``tried`` is filled on the way."""
    tried.skipped = needs_mounts()
    if tried.skipped is not None:
        return
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as parent:
        path = os.path.join(parent, "disk")
        os.mkdir(path)
        try:
            with FILE_SYSTEMS[name](path):
                for number, each in enumerate(scenarios):
                    show(name, number / len(scenarios), each.name)
                    place = os.path.join(path, each.name)
                    options = Options(each.processes, seconds, each.max_size_bytes, seed, directory=place)
                    tried.outcomes.append(run_bytes(each, options, lambda stage, share, words: None))
        except UnusableError as error:
            tried.skipped = str(error)
    show(name, 1.0, "")
