"""Whether the suite finds what it is for: every bug that can be planted in the library, planted and looked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockcache_stress.run import Options, Show, run_bytes
from lockcache_stress.scenarios import BYTE_SCENARIOS
from lockcache_stress.trouble import BUGS, Bug

__all__ = ["Proven", "prove"]


@dataclass(frozen=True)
class Proven:
    """What became of one planted bug."""

    name: str
    bug: Bug
    #: The checks that failed.
    failed: list[str]

    @property
    def is_found(self) -> bool:
        """Whether it was found as what it is, and not by accident."""
        return any(name in self.bug.found_by for name in self.failed)


def prove(names: tuple[str, ...], seconds: float, seed: int, show: Show) -> Iterator[Proven]:
    """Plant each bug in the scenario that has to find it, and run that; one after the other, as they are asked for."""
    scenarios = {scenario.name: scenario for scenario in BYTE_SCENARIOS}
    for name in names:
        bug = BUGS[name]
        scenario = scenarios[bug.scenario]
        options = Options(scenario.processes, seconds, scenario.max_size_bytes, seed, plant=name)
        outcome = run_bytes(scenario, options, show)
        yield Proven(name, bug, [check.name for check in outcome.checks() if not check.ok])
