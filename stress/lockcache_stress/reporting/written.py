"""What goes into a report, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockcache_stress.outcome import Told

__all__ = ["Ran", "Written"]


@dataclass(frozen=True)
class Ran:
    """A run that has ended, and the command that makes the same choices again."""

    outcome: Told
    replay: Sequence[str]


@dataclass(frozen=True)
class Written:
    """Everything that goes into a report."""

    title: str
    runs: Sequence[Ran]
    #: On what: name and description.
    machine: Mapping[str, str]
    #: What was not run, and why.
    skipped: Sequence[tuple[str, str]] = ()
    #: Why it is not all that was asked for; empty for what came to its end.
    cut_short: str = ""

    @property
    def ok(self) -> bool:
        """Whether all of it is there and as it must be."""
        return not self.cut_short and all(ran.outcome.ok for ran in self.runs)
