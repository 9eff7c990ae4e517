# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress power-cut``, with click."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import cycle
from typing import Final

import click

from lockcache_stress.commands.shell import IF_POSSIBLE, SECONDS, Shell, with_shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments import KINDS, Cut, cut_once, why_no_power_cut
from lockcache_stress.report import Written
from lockcache_stress.run import Check, Grid, GridRow, Show, Tabled, some, zero

_LONGEST_SECONDS: Final = 0.5
_SUMS: Final = ("writes", "served", "hollow", "lost", "torn")


@click.command("power-cut", short_help="the power goes while writers write: nothing torn is served afterwards")
@click.option("--seconds", type=SECONDS, default=10.0, show_default=True, help="Cuts begin in it.")
@click.option("--writers", type=click.IntRange(1, 64), default=3, show_default=True)
@IF_POSSIBLE
@with_shell("power-cut")
def power_cut_command(shell: Shell, seconds: float, writers: int, if_possible: bool) -> int:
    """Cut the power of an ext4 and an xfs, in turns with and without fsync, again and again (these two root only).

    And of a FUSE file system that forgets all that was not synced, as POSIX allows: names, renames and attributes too.

    Each cut has a file system of its own. At least one of each kind is made, however short the time. A kind that
    cannot be made here is skipped, with the reason.

    \b
    lockcache-stress power-cut --seconds 60 --report cuts.html --junit cuts.xml
    """
    skipped = [(kind, why) for kind in KINDS if (why := why_no_power_cut(kind)) is not None]
    kinds = [kind for kind in KINDS if kind not in dict(skipped)]
    cuts: list[Cut] = []
    replay = shell.replay("--seconds", f"{seconds:g}", "--writers", str(writers))

    def as_json(written: Written) -> dict[str, object]:
        found = {"ok": written.ok, "seed": shell.seed, "cuts": [asdict(cut) for cut in cuts]}
        return {**found, "skipped": dict(skipped), "replay": replay}

    logging.getLogger("lockcache").setLevel(logging.ERROR)  # each hollow entry logs a warning, and is counted here
    tabulate = partial(_tabulate, cuts, shell.seed)
    with shell.finding(cuts, "cuts", tabulate, replay, as_json, skipped=skipped) as show:
        cuts.extend(_cut_in_turns(kinds, writers, seconds, shell.seed, show))
    if not cuts and not if_possible:
        raise UnusableError(f"power-cut cannot be run here: {skipped[0][1]}")
    return shell.code


def _cut_in_turns(kinds: Sequence[str], writers: int, seconds: float, seed: int, show: Show) -> Iterator[Cut]:
    ways = [(kind, fsync) for kind in kinds for fsync in (False, True)]
    rng, began = random.Random(seed), time.monotonic()
    for number, (kind, fsync) in enumerate(cycle(ways)):
        passed = time.monotonic() - began
        if number >= len(ways) and passed > seconds:
            return
        show("power-cut", min(1.0, passed / seconds), f"{number} cuts")
        pause = rng.uniform(0.02, _LONGEST_SECONDS)
        yield cut_once(kind, fsync=fsync, writers=writers, seconds=pause)


def _tabulate(cuts: Sequence[Cut], seed: int) -> Tabled:
    columns = ("disk", "fsync", "cuts", "writes before", "served", "refused", "lost", "torn")
    lines: list[Check] = []
    rows = []
    for kind, fsync in dict.fromkeys((cut.kind, cut.fsync) for cut in cuts):
        mine = [cut for cut in cuts if (cut.kind, cut.fsync) == (kind, fsync)]
        lines += _checks(mine)
        sums = [f"{sum(getattr(cut, name) for cut in mine):,}" for name in _SUMS]
        ok = all(cut.ok for cut in mine)
        rows.append(GridRow([kind, "yes" if fsync else "no", f"{len(mine):,}", *sums], ok))
    writes, torn = sum(cut.writes for cut in cuts), sum(cut.torn for cut in cuts)
    return Tabled(
        name="power-cut",
        title=f"power-cut: {len(cuts)} cuts, {cuts[0].writers} writers, seed {seed}",
        lines=lines,
        numbers={"seed": seed, "cuts": [asdict(cut) for cut in cuts]},
        counts=[f"{writes:,}", f"{sum(cut.served for cut in cuts):,}", f"{torn:,}"],
        grids=[Grid(f"{len(cuts)} power cuts", columns, rows)],
        findings=[{"error": _words(number, cut)} for number, cut in enumerate(cuts, 1) if not cut.ok],
    )


def _checks(cuts: Sequence[Cut]) -> list[Check]:
    """Returns the checks of cuts of one kind, which fail if one of the cuts does."""
    way = f"{cuts[0].kind}, {'with' if cuts[0].fsync else 'without'} fsync"
    lost = sum(cut.lost for cut in cuts)
    return [
        some(f"{way}: cuts", len(cuts)),
        zero(f"{way}: cuts before any write", sum(not cut.writes for cut in cuts)),
        Check(f"{way}: served", f"{sum(cut.served for cut in cuts):,}"),
        Check(f"{way}: refused by the digest", f"{sum(cut.hollow for cut in cuts):,}"),
        zero(f"{way}: torn", sum(cut.torn for cut in cuts)),
        zero(f"{way}: writes lost", lost) if cuts[0].fsync else Check(f"{way}: writes lost", f"{lost:,}"),
    ]


def _words(number: int, cut: Cut) -> str:
    way = f"{cut.kind}, {'with' if cut.fsync else 'without'} fsync"
    return f"cut {number} ({way}): {cut.torn} torn, {cut.lost} lost, {cut.writes} writes before it"
