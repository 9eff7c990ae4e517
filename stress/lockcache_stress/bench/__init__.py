"""``lockcache-stress bench``: this cache beside cuda.core's, in one run, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from lockcache_stress.bench import (
    damage,
    hit,
    importing,
    miss,
    opening,
    overshoot,
    put,
    put_full,
    syscalls,
)
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.workspace import workspace

__all__ = ["MEASUREMENTS", "run_bench"]

#: By the names that the command line takes, in the order in which they run.
MEASUREMENTS: Final[dict[str, Callable[[Bench], list[Line]]]] = {
    "hit": hit.measure,
    "miss": miss.measure,
    "put": put.measure,
    "put-full": put_full.measure,
    "open": opening.measure,
    "overshoot": overshoot.measure,
    "import": importing.measure,
    "damage": damage.measure,
    "syscalls": syscalls.measure,
}


def run_bench(
    names: Sequence[str], directory: str | None, *, quick: bool, show: Callable[[str, float, str], None]
) -> list[Line]:
    """Run these measurements under ``directory`` (temporary: the default), and remove what they made."""
    lines: list[Line] = []
    for name in names:
        with workspace(None, parent=directory) as space:
            lines += MEASUREMENTS[name](Bench(space.cache, quick, partial(show, name)))
        show(name, 1.0, "")
    return lines
