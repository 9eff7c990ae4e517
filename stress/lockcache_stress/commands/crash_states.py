# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress crash-states``, with click."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.crash_states import CASES, PLANTED_CUTS, PROMISES, Cuts, all_ways, try_all
from lockcache_stress.run import Check, Grid, GridRow, Tabled


@click.command("crash-states", short_help="every disk that a power cut may leave of a put, an eviction, a cap")
@click.argument("names", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--promise", type=click.Choice(PROMISES), help="Only what this kind of file system may leave.")
@click.option("--jobs", type=click.IntRange(1, 256), default=None, help="Cases at once. [processors]")
@click.option("--plant", type=click.Choice(list(PLANTED_CUTS)), help="Plant this fault, in the case that finds it.")
@with_shell("crash-states", is_seeded=False)
def crash_states_command(
    shell: Shell, names: tuple[str, ...], promise: str | None, jobs: int | None, plant: str | None
) -> int:
    """Build every directory that a power cut may leave of an operation, and open, read, verify and recount it.

    NAMES are the operations; all by default, each with and without fsync. The calls of an operation are logged; of what
    was not synced, any part may be there: in the order of a journal (ext4, xfs, btrfs), or in none (all that POSIX
    promises). Exit code 1 if something torn is served, with fsync something that was stored is lost, or one recount
    does not make the accounting exact.

    \b
    lockcache-stress crash-states put replace
    lockcache-stress crash-states --plant no-digest
    """
    ways = [way for way in all_ways(names or tuple(CASES)) if promise in (None, way[1])]
    if plant is not None:
        fault = PLANTED_CUTS[plant]
        ways = [(fault.case, fault.promise, fault.fsync)]
    found: list[Cuts] = []
    replay = ["lockcache-stress", "crash-states", *names]
    with shell.finding(found, "cases", lambda: _tabulate(found), replay, lambda _: _as_json(found)) as show:
        found.extend(try_all(ways, jobs or len(os.sched_getaffinity(0)), show, plant or ""))
    return shell.code


def _as_json(found: Sequence[Cuts]) -> dict[str, Any]:
    states = sum(each.states for each in found)
    return {"ok": all(each.ok for each in found), "states": states, "cases": [each.as_json() for each in found]}


def _tabulate(found: Sequence[Cuts]) -> Tabled:
    states, wrong = sum(each.states for each in found), [each for each in found if not each.ok]
    columns = ("operation", "promise", "fsync", "changes", "states", "served")
    return Tabled(
        name="crash-states",
        title=f"crash-states: {states:,} states",
        lines=[
            Check("states", f"{states:,}", "> 0", states > 0),
            Check("cases with broken promises", f"{len(wrong):,}", "0", not wrong),
        ],
        numbers=_as_json(found),
        counts=[f"{states:,}"],
        grids=[Grid("disks after a power cut", columns, [GridRow(_cells(each), each.ok) for each in found])],
        findings=[
            {"error": f"{each.name}, {each.promise}, fsync={each.fsync}: {why}"} for each in wrong for why in each.wrong
        ],
    )


def _cells(each: Cuts) -> list[str]:
    served = ", ".join(f"{name} {count:,}" for name, count in sorted(each.served.items()))
    return [each.name, each.promise, "yes" if each.fsync else "no", f"{each.changes}", f"{each.states:,}", served]
