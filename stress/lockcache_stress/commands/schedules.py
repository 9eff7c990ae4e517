# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress schedules``, with click."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from lockcache_stress.commands.shell import SECONDS, Shell, with_shell
from lockcache_stress.run import Check, Grid, GridRow, Tabled
from lockcache_stress.schedules import (
    OPERATIONS,
    PAIRS,
    PLANTED,
    TRIPLES,
    Experiment,
    Explored,
    Explorer,
    explore_all,
    is_found,
    planted_experiment,
    prove_all,
    workplace,
)

_SECONDS: Final = 270.0
_NIGHTLY_SECONDS: Final = 7000.0
_MOST_SHOWN: Final = 5


def _parse_operations(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = [tuple(each.split("+")) for each in given]
    for name in {name for names in found for name in names}:
        if name not in OPERATIONS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(OPERATIONS)}")
    return found


def _parse_schedule(context: click.Context, param: click.Parameter, given: str | None) -> list[int] | None:
    if given is None:
        return None
    try:
        return [int(each) for each in given.split(",") if each]
    except ValueError:
        raise click.BadParameter("these are not integers with commas between") from None


@click.command("schedules", short_help="every order of the steps of two operations, with few preemptions")
@click.argument("operations", nargs=-1, callback=_parse_operations, metavar="[OPERATION+OPERATION]...")
@click.option("--preemptions", type=click.IntRange(0, 6), default=2, show_default=True, help="At most, in a schedule.")
@click.option("--no-kills", is_flag=True, help="Without SIGKILLs as steps.")
@click.option("--seconds", type=SECONDS, default=None, help=f"In all. [{_SECONDS:g}, nightly {_NIGHTLY_SECONDS:g}]")
@click.option("--jobs", type=click.IntRange(1, 256), default=None, help="Experiments at once. [processors]")
@click.option("--nightly", is_flag=True, help="Pairs with three preemptions, and triples with two.")
@click.option("--plant", type=click.Choice(list(PLANTED)), help="Plant this fault, in the operations that find it.")
@click.option("--planted", is_flag=True, help="Plant each fault, and fail if one is not found.")
@click.option("--replay", callback=_parse_schedule, metavar="0,3,1", help="Run this one schedule, and print its steps.")
@with_shell("schedules", is_seeded=False)
def schedules_command(
    shell: Shell,
    operations: list[tuple[str, ...]],
    preemptions: int,
    no_kills: bool,
    seconds: float | None,
    jobs: int | None,
    nightly: bool,
    plant: str | None,
    planted: bool,
    replay: list[int] | None,
) -> int:
    """Run real operations in real processes, stopped in front of each call, in every order that matters.

    OPERATION+OPERATION names what runs at once; by default every two of them. Orders that differ only in calls that
    commute are run once. A schedule is a list of integers: a process and how many steps it makes, the next process and
    its steps, and so on; the number of a process plus the count of processes is its SIGKILL. Exit code 1 if after any
    schedule something torn or older is served, the cap or the accounting is broken, or a process waits for nobody.

    \b
    lockcache-stress schedules put+evict --preemptions 3
    lockcache-stress schedules put+get --replay 0,3,1
    lockcache-stress schedules --planted
    """
    if replay is not None:
        return _replay(operations, plant, replay)
    pairs: Iterable[tuple[str, ...]] = operations or PAIRS
    experiments = [Experiment(tuple(names), preemptions, not no_kills) for names in pairs]
    if nightly:
        experiments = [Experiment(names, 2, kills=False) for names in (() if operations else TRIPLES)]
        experiments += [Experiment(tuple(names), 3, not no_kills) for names in pairs]
    found: list[Explored] = []
    seconds = seconds or (_NIGHTLY_SECONDS if nightly else _SECONDS)
    count = jobs or len(os.sched_getaffinity(0))
    words = [*map("+".join, operations), "--preemptions", str(preemptions)]
    with shell.finding(
        found,
        "experiments",
        lambda: _tabulate(found),
        ["lockcache-stress", "schedules", *words],
        lambda _: _as_json(found),
    ) as show:
        if plant or planted:
            found.extend(prove_all([plant] if plant else list(PLANTED), seconds, count, show))
        else:
            found.extend(explore_all(experiments, seconds, count, show))
    return shell.code


def _replay(operations: Sequence[tuple[str, ...]], plant: str | None, schedule: list[int]) -> int:
    if plant is None and len(operations) != 1:
        raise click.UsageError("--replay needs the operations of the schedule, such as put+get")
    experiment = Experiment(tuple(operations[0])) if plant is None else planted_experiment(plant)
    with workplace() as root:
        try:
            ran, wrong = Explorer(experiment, root).replay(schedule)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    for step, (number, call, _) in enumerate(ran.calls):
        what = call or ("dies" if ran.processes[number].is_dead and step == _last(ran.calls, number) else "sleeps")
        print(f"{step:4}  {number}  {experiment.names[number]:10}  {'    ' * number}{what}")
    for each in wrong:
        print(f"wrong: {each}")
    return int(bool(wrong))


def _last(calls: Sequence[Any], number: int) -> int:
    return max(step for step, (its, *_) in enumerate(calls) if its == number)


def _as_json(found: Sequence[Explored]) -> dict[str, Any]:
    return {
        "ok": all(map(_is_ok, found)),
        "schedules": sum(each.schedules for each in found),
        "steps": sum(each.steps for each in found),
        "whole": sum(each.is_whole for each in found),
        "experiments": [each.as_json() for each in found],
    }


def _is_ok(each: Explored) -> bool:
    return is_found(each) if each.experiment.fault else each.ok


def _tabulate(found: Sequence[Explored]) -> Tabled:
    total, whole = sum(each.schedules for each in found), sum(each.is_whole for each in found)
    bad = [each for each in found if not _is_ok(each)]
    is_planted = any(each.experiment.fault for each in found)
    lines = [
        Check("schedules", f"{total:,}", "> 0", total > 0),
        Check("steps", f"{sum(each.steps for each in found):,}"),
        Check("deaths", f"{sum(each.kills for each in found):,}"),
        Check("repetitions of an order", f"{sum(each.redundant for each in found):,}"),
        Check("runs compared with the model", f"{sum(each.compared for each in found):,}"),
        Check("experiments explored whole", f"{whole:,} of {len(found):,}"),
        Check("seconds of processor time", f"{sum(each.cpu_seconds for each in found):,.0f}"),
        Check("faults not found" if is_planted else "broken promises", f"{len(bad):,}", "0", not bad),
    ]
    columns = (
        "operations",
        "preemptions",
        "schedules",
        "repetitions",
        "deaths",
        "longest",
        "seconds",
        "of processor",
        "whole",
        "shortest",
    )
    return Tabled(
        name="schedules",
        title=f"schedules: {len(found)} experiments, {total:,} schedules",
        lines=lines,
        numbers=_as_json(found),
        counts=[f"{total:,}"],
        grids=[Grid("orders of operations", columns, [GridRow(_cells(each), _is_ok(each)) for each in found])],
        findings=[_finding(each) for each in bad],
    )


def _cells(each: Explored) -> list[str]:
    name = each.experiment.title + (f", {each.experiment.fault}" if each.experiment.fault else "")
    counts = [each.experiment.most_preemptions, each.schedules, each.redundant, each.kills, each.longest]
    shortest = ",".join(map(str, each.violations[0].schedule)) or "as is" if each.violations else ""
    whole = "yes" if each.is_whole else "no"
    return [
        name,
        *(f"{count:,}" for count in counts),
        f"{each.seconds:.1f}",
        f"{each.cpu_seconds:.1f}",
        whole,
        shortest,
    ]


def _finding(each: Explored) -> dict[str, Any]:
    if each.experiment.fault:
        return {"error": f"{each.experiment.fault} was planted in {each.experiment.title} and not found"}
    said = [
        f"--replay {','.join(map(str, violation.schedule)) or '0'}: {'; '.join(violation.wrong)}"
        for violation in each.violations[:_MOST_SHOWN]
    ]
    return {"error": f"{each.experiment.title}: {' | '.join(said)}"}
