"""The plan of one herd: the same for the parent and every member, and small enough to be sent to a spawned process."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Final

__all__ = ["PHASES", "UNCACHED", "HerdOptions", "HerdPlan"]

#: Cold, and again after one header has changed.
PHASES: Final = ("cold", "changed")
#: All kernels once more, by each process for itself: what the cache saves is compared with it.
UNCACHED: Final = "uncached"


@dataclass(frozen=True)
class HerdOptions:
    """What the command line says about a herd."""

    processes: int
    kernels: int
    seed: int
    directory: str | None = None
    plant: str | None = None
    #: Whether a last phase does without the cache.
    uncached: bool = False


@dataclass(frozen=True)
class HerdPlan:
    """One run. Kernels and the order in which each process wants them are drawn from the seed."""

    options: HerdOptions
    #: The cache under test.
    directory: str
    #: Headers, and a line for every compilation.
    control: str

    @property
    def include(self) -> str:
        """The directory that the sources search for headers."""
        return os.path.join(self.control, "include")

    @property
    def token(self) -> str:
        """Tells this run's keys from those of another run in the same directory."""
        return os.path.basename(self.control)

    @property
    def phases(self) -> tuple[str, ...]:
        """The names of all phases."""
        return (*PHASES, UNCACHED) if self.options.uncached else PHASES

    def compiled(self, phase: int) -> str:
        """The file to which every compilation of a phase adds one line."""
        return os.path.join(self.control, f"compiled-{phase}")

    def is_spread(self, phase: int) -> bool:
        """Whether each process begins with a kernel of its own; else all want the same at once. One phase is each."""
        first = random.Random(f"{self.options.seed}/starts").random() < 0.5
        return first if phase == 0 else not first

    def order(self, phase: int, index: int) -> list[int]:
        """In which order process ``index`` wants the kernels."""
        start = 0
        if self.is_spread(phase):
            start = random.Random(f"{self.options.seed}/{phase}/{index}").randrange(self.options.kernels)
        numbers = list(range(self.options.kernels))
        return numbers[start:] + numbers[:start]
