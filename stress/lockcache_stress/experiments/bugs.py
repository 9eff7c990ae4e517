"""Proof that the suite finds what it is for: every bug of the library that can be planted is planted and looked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lockcache_stress.run import Options, Show, run_bytes
from lockcache_stress.scenarios import BYTE_SCENARIOS, TROUBLE_SCENARIOS
from lockcache_stress.trouble import BUGS, Fault

__all__ = ["Proven", "possible_bugs", "prove"]


_SCENARIOS: Final = {scenario.name: scenario for scenario in (*BYTE_SCENARIOS, *TROUBLE_SCENARIOS)}


def possible_bugs() -> tuple[str, ...]:
    """Returns the names of the bugs whose scenario can be run here: some need root."""
    return tuple(name for name, bug in BUGS.items() if _SCENARIOS[bug.scenario].why_not() is None)


@dataclass(frozen=True)
class Proven:
    """What became of one planted bug."""

    name: str
    bug: Fault
    #: The checks that failed.
    failed: list[str]

    @property
    def is_found(self) -> bool:
        """Whether it was found as what it is, and not by accident."""
        return any(name in self.bug.found_by for name in self.failed)

    def as_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {"bug": self.name, "found": self.is_found, "failed_checks": self.failed}


def prove(names: tuple[str, ...], seconds: float, seed: int, show: Show) -> Iterator[Proven]:
    """Plant each bug in the scenario that has to find it, and run that; one after the other, as they are asked for."""
    for name in names:
        bug = BUGS[name]
        scenario = _SCENARIOS[bug.scenario]
        options = Options(scenario.processes, seconds, scenario.max_size_bytes, seed, plant=name)
        outcome = run_bytes(scenario, options, show)
        yield Proven(name, bug, [check.name for check in outcome.checks() if not check.ok])
