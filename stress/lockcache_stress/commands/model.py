# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress model``, with click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.model import CHECKED, FAULTY, MODELS, PLANTED, Claimed, Searched, run_spin, search, why_no_spin
from lockcache_stress.run import Check, Grid, GridRow, Tabled


@click.command("model", short_help="a model of the protocol, explored whole; SPIN checks it again")
@click.option("--planted", is_flag=True, help="Plant each fault, and fail if one is not found.")
@click.option("--no-spin", is_flag=True, help="Without SPIN, which takes minutes.")
@with_shell("model", is_seeded=False)
def model_command(shell: Shell, planted: bool, no_spin: bool) -> int:
    """Explore every state of a model of page, names, locks, leases and death, for two and three processes.

    In each state the page says no less than the disk holds, the disk is under the cap, and from each all living
    processes can end. SPIN, if it is installed, checks other models of lease, page and cap, written for themselves: all
    end. That real runs are runs of the model is what "lockcache-stress schedules" checks.

    \b
    lockcache-stress model
    lockcache-stress model --planted --json
    """
    found: list[Searched] = []
    claimed: list[Claimed] = []
    why_not = why_no_spin()
    skipped = [("SPIN", why_not)] if why_not and not no_spin else []
    models = [model._replace(fault=fault) for fault, model in PLANTED.items()] if planted else MODELS
    with shell.finding(
        found,
        "models",
        lambda: _tabulate(found, claimed, planted=planted),
        ["lockcache-stress", "model", *(["--planted"] if planted else [])],
        lambda written: _as_json(found, claimed, ok=written.ok),
        skipped=skipped,
    ) as show:
        for number, model in enumerate(models, 1):
            found.append(search(model))
            show("model", number / len(models), "+".join(map(str, model.programs)))
        if why_not is None and not no_spin:
            claimed.extend(run_spin(FAULTY if planted else CHECKED))
    return shell.code


def _as_json(found: Sequence[Searched], claimed: Sequence[Claimed], *, ok: bool) -> dict[str, Any]:
    states, spin = sum(each.states for each in found), [vars(each) for each in claimed]
    return {"ok": ok, "states": states, "models": [each.as_json() for each in found], "spin": spin}


def _tabulate(found: Sequence[Searched], claimed: Sequence[Claimed], *, planted: bool) -> Tabled:
    bad = [each for each in found if each.ok is planted]
    lines = [
        Check("states", f"{sum(each.states for each in found):,}"),
        Check("faults not found" if planted else "models with a broken promise", f"{len(bad):,}", "0", not bad),
    ]
    if claimed:
        wrong = [each for each in claimed if not each.is_expected]
        lines.append(Check("SPIN, claims", f"{len(claimed):,}"))
        lines.append(Check("SPIN, states of all claims", f"{sum(each.states for each in claimed):,}"))
        what = "SPIN, faults not found" if planted else "SPIN, claims broken"
        lines.append(Check(what, f"{len(wrong):,}", "0", not wrong))
    columns = ("programs", "cap", "entries", "fault", "states", "what is wrong", "steps until then")
    rows = [GridRow(_cells(each), each.ok is not planted) for each in found]
    return Tabled(
        name="model",
        title=f"model: {len(found)} models",
        lines=lines,
        numbers=_as_json(found, claimed, ok=all(line.ok for line in lines)),
        counts=[f"{sum(each.states for each in found):,}"],
        grids=[Grid("models", columns, rows)],
        findings=[{"error": f"{each.model}: {each.wrong or 'the fault was not found'}"} for each in bad],
    )


def _cells(each: Searched) -> list[str]:
    model = each.model
    wrong = min(each.wrong.items(), key=lambda item: len(item[1]), default=("", []))
    steps = str(len(wrong[1])) if wrong[0] else ""
    held = str(sum(map(bool, model.entries)))
    return ["+".join(map(str, model.programs)), str(model.cap), held, model.fault, f"{each.states:,}", wrong[0], steps]
