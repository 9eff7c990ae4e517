"""``lockcache-stress keys``, with click."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.experiments import Changed, Outcome, try_pairs
from lockcache_stress.run import Check, Grid, GridRow, Tabled


@click.command("keys", short_help="changes one thing of a compilation at a time: does the key change with the output?")
@click.option("--pairs", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="Pairs to compile.")
@with_shell("keys")
def keys_command(shell: Shell, pairs: int) -> int:
    """Compile pairs that differ in one option, macro, header, variable, directory or line, with the real NVRTC.

    Wherever the two outputs differ, the keys must differ, and the part that changed must be named as 'lockcache why'
    names it. The table says what reached the output. A pair takes some 0.1 s; for a night, --pairs 100000.

    \b
    lockcache-stress keys
    lockcache-stress keys --pairs 5000 --seed 1 --report keys.html
    """
    tried: list[Outcome] = []
    replay = shell.replay("--pairs", str(pairs))
    with shell.finding(
        tried, "pairs", lambda: _tabulate(tried, shell.seed), replay, lambda _: _numbers(tried, shell.seed)
    ) as show:
        tried.extend(try_pairs(pairs, shell.seed, show))
    return shell.code


def _tabulate(tried: Sequence[Outcome], seed: int) -> Tabled:
    compared = [each.changed for each in tried if each.changed is not None]
    hidden = [each for each in compared if each.is_other_output and not each.is_other_key]
    unnamed = [each for each in compared if bool(each.named) != each.is_other_key]
    reached = sum(each.is_other_output for each in compared)
    return Tabled(
        name="keys",
        title=f"keys: {len(tried)} pairs, seed {seed}",
        lines=[
            Check("pairs compared", f"{len(compared)}", "more than 0", bool(compared)),
            Check("outputs that differ under one key", f"{len(hidden)} of {reached}", "0", not hidden),
            Check("keys that differ in no part", f"{len(unnamed)}", "0", not unnamed),
        ],
        numbers=_numbers(tried, seed),
        counts=[f"{len(tried):,}"],
        grids=[
            Grid("what was changed", ("change", "pairs", "reaches the output", "key differs", "named"), _rows(tried))
        ],
        findings=[{"error": f"{each.what}: {_words(each)}"} for each in compared if not each.ok],
    )


def _rows(tried: Sequence[Outcome]) -> list[GridRow]:
    rows = []
    for what in dict.fromkeys(each.what for each in tried):
        changed = [each.changed for each in tried if each.what == what and each.changed is not None]
        output, key = sum(each.is_other_output for each in changed), sum(each.is_other_key for each in changed)
        reaches = f"yes, {output} of {len(changed)}" if output else "no" if changed else "never compiled"
        named = sorted({name for each in changed for name in each.named})
        rows.append(
            GridRow([what, str(len(changed)), reaches, str(key), ", ".join(named)], all(each.ok for each in changed))
        )
    return rows


def _words(changed: Changed) -> str:
    if changed.is_other_output and not changed.is_other_key:
        return "the output is another, the key the same"
    key = "another" if changed.is_other_key else "the same"
    return f"the key is {key}, named: {', '.join(changed.named) or 'nothing'}"


def _numbers(tried: Sequence[Outcome], seed: int) -> dict[str, object]:
    pairs = [
        {"change": each.what, **(each.changed._asdict() if each.changed else {"compiled": False})} for each in tried
    ]
    return {"seed": seed, "pairs": pairs}
