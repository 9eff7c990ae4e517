"""``lockcache-stress bugs``, with click."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lockcache_stress.commands.options import JSON, SECONDS, SEED, choose_seed, reporting
from lockcache_stress.experiments import Proven, possible_bugs, prove
from lockcache_stress.report import (
    Files,
    Grid,
    GridRow,
    Ran,
    Tabled,
    Written,
    finishing,
    print_json,
    print_tabled,
    showing,
)
from lockcache_stress.run import Check
from lockcache_stress.trouble import BUGS

__all__ = ["bugs_command"]


@click.command("bugs", short_help="plants bugs in the library: is each of them found?")
@click.argument("names", nargs=-1, type=click.Choice(list(BUGS)))
@click.option("--seconds", type=SECONDS, default=5.0, show_default=True, help="For each of them.")
@SEED
@JSON
@reporting
def bugs_command(
    names: tuple[str, ...], seconds: float, seed: int | None, as_json: bool, report: str | None, junit: str | None
) -> int:
    """Break the library in a known way, run the scenario that has to find it, and fail if it does not.

    NAMES are the bugs to plant; by default all whose scenario can be run here. `lockcache-stress SCENARIO --plant NAME`
    shows one in detail.

    \b
    lockcache-stress bugs no-digest --seconds 2
    lockcache-stress bugs --report bugs.html --junit bugs.xml
    """
    files, chosen = Files(report, junit), choose_seed(seed)
    proven: list[Proven] = []
    replay = ["lockcache-stress", "bugs", *names, "--seconds", f"{seconds:g}", "--seed", str(chosen)]

    def make() -> Written:
        return Written("lockcache-stress bugs", [Ran(_told(proven, chosen), replay)] if proven else [], {})

    def tell(written: Written) -> None:
        if as_json:
            print_json([_as_json(each) for each in proven])
        else:
            print_tabled(written)

    with finishing(make, tell, files, lambda: f"{len(proven)} bugs", as_json=as_json) as finished, showing() as show:
        proven.extend(prove(names or possible_bugs(), seconds, chosen, show))
    return finished.code


def _told(proven: Sequence[Proven], seed: int) -> Tabled:
    columns = ("bug", "what it is", "scenario", "checks that failed")
    rows = [GridRow([each.name, each.bug.help, each.bug.scenario, _failed(each)], each.is_found) for each in proven]
    return Tabled(
        name="bugs",
        title=f"bugs: {len(proven)} planted, seed {seed}",
        lines=[_check(each) for each in proven],
        numbers={"seed": seed, "bugs": [_as_json(each) for each in proven]},
        counts=[f"{len(proven):,}"],
        grids=[Grid("planted bugs", columns, rows)],
        findings=[{"error": _words(each)} for each in proven if not each.is_found],
    )


def _words(each: Proven) -> str:
    return f"{each.name} was planted in {each.bug.scenario} and not found: {each.bug.help}"


def _check(each: Proven) -> Check:
    return Check(each.name, f"found by: {_failed(each)}", f"found by: {' or '.join(each.bug.found_by)}", each.is_found)


def _failed(each: Proven) -> str:
    return ", ".join(each.failed) or "none"


def _as_json(each: Proven) -> dict[str, object]:
    return {"bug": each.name, "found": each.is_found, "failed_checks": each.failed}
