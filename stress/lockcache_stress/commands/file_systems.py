# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress filesystems``, with click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from lockcache_stress.commands.shell import IF_POSSIBLE, SECONDS, Shell, with_shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments import FILE_SYSTEMS, Tried, try_on
from lockcache_stress.report import Ran, Written
from lockcache_stress.run import Check, Grid, GridRow, Outcome, Tabled
from lockcache_stress.scenarios import BYTE_SCENARIOS

_SCENARIOS: Final = {scenario.name: scenario for scenario in BYTE_SCENARIOS}
_COUNTED: Final = ("operations", "hits", "torn", "stale", "foreign")


@click.command("filesystems", short_help="the byte scenarios on ext4, xfs, btrfs, tmpfs and overlayfs")
@click.argument("names", nargs=-1, type=click.Choice(list(FILE_SYSTEMS)))
@click.option("--scenario", "chosen", multiple=True, type=click.Choice(list(_SCENARIOS)), help="Only this. [all]")
@click.option("--seconds", type=SECONDS, default=60.0, show_default=True, help="For all of them.")
@IF_POSSIBLE
@with_shell("filesystems")
def filesystems_command(
    shell: Shell, names: tuple[str, ...], chosen: tuple[str, ...], seconds: float, if_possible: bool
) -> int:
    """Mount each file system from an image of its own (root only) and run the byte scenarios on it, sharing --seconds.

    NAMES are the file systems; all by default. A file system that is unavailable here is skipped, with the reason.

    \b
    lockcache-stress filesystems xfs --scenario same-key --seconds 10
    lockcache-stress filesystems --seconds 600 --report disks.html --junit disks.xml
    """
    wanted, scenarios = list(dict.fromkeys(names)) or list(FILE_SYSTEMS), list(dict.fromkeys(chosen)) or [*_SCENARIOS]
    each_seconds = seconds / len(wanted) / len(scenarios)
    tried: dict[str, Tried] = {}

    def as_json(written: Written) -> dict[str, object]:
        return {"ok": written.ok, "file_systems": {name: each.as_json() for name, each in tried.items()}}

    def done() -> str:
        return f"{sum(len(each.outcomes) for each in tried.values())} scenarios"

    make = _Making(tried, scenarios, each_seconds, shell.seed)
    with shell.running(make, as_json, done) as show:
        for name in wanted:
            tried[name] = Tried()
            try_on(name, [_SCENARIOS[each] for each in scenarios], each_seconds, shell.seed, tried[name], show)
    if not make().runs and not if_possible:
        raise UnusableError(f"filesystems cannot be run here: {tried[wanted[0]].skipped}")
    return shell.code


@dataclass
class _Making:
    """Makes the report of the file systems tried so far: a suite for each, and each run that failed."""

    _tried: Mapping[str, Tried]
    _scenarios: Sequence[str]
    _seconds: float
    _seed: int

    def __call__(self) -> Written:
        runs = []
        for name, each in self._tried.items():
            if each.outcomes:
                runs.append(Ran(_tabulate(name, each, self._seed), self._replay(name, self._scenarios)))
            runs += [
                Ran(found, self._replay(name, [found.name]), place=name) for found in each.outcomes if not found.ok
            ]
        skipped = [(name, each.skipped) for name, each in self._tried.items() if each.skipped is not None]
        return Written("lockcache-stress filesystems", runs, {}, skipped, grids=[self._grid()] if runs else [])

    def _replay(self, name: str, scenarios: Sequence[str]) -> list[str]:
        """Returns the command that runs each scenario for the same time, on this file system alone."""
        words = ["lockcache-stress", "filesystems", name]
        if len(scenarios) < len(_SCENARIOS):
            words += [word for each in scenarios for word in ("--scenario", each)]
        return [*words, "--seconds", f"{self._seconds * len(scenarios):g}", "--seed", str(self._seed)]

    def _grid(self) -> Grid:
        rows = []
        for scenario in self._scenarios:
            found = [
                next((run for run in each.outcomes if run.name == scenario), None) for each in self._tried.values()
            ]
            ok = all(outcome is None or outcome.ok for outcome in found)
            rows.append(GridRow([scenario, *map(_cell, found)], ok))
        title = "the byte scenarios on each file system: operations"
        return Grid(title, ["scenario", *self._tried], rows, judges_rows=False)


def _tabulate(name: str, tried: Tried, seed: int) -> Tabled:
    found = tried.outcomes
    sums = [f"{sum(outcome.totals[counted] for outcome in found):,}" for counted in _COUNTED]
    deaths = sum(len(outcome.deaths) for outcome in found)
    return Tabled(
        name=name,
        title=f"{name}: {len(found)} scenarios, seed {seed}",
        lines=[Check(outcome.name, _value(outcome), "ok", outcome.ok) for outcome in found],
        numbers={"skipped": tried.skipped, "scenarios": [outcome.as_json() for outcome in found]},
        counts=[*sums, str(deaths)],
    )


def _value(outcome: Outcome) -> str:
    if outcome.ok:
        return f"ok, {outcome.totals['operations']:,} operations"
    wrong = [f"{check.name} is {check.value}, must be {check.must}" for check in outcome.checks() if not check.ok]
    return "; ".join(wrong)


def _cell(outcome: Outcome | None) -> str:
    """Returns a cell; dashes for a scenario that did not run."""
    if outcome is None:
        return "--"
    return f"ok {outcome.totals['operations']:,}" if outcome.ok else "NO"
