# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress keys``, with click."""

from __future__ import annotations

from typing import Final

import click

from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.experiments.keys import (
    Moved,
    Outcome,
    moves_numbers,
    pairs_numbers,
    tabulate_moves,
    tabulate_pairs,
    try_moves,
    try_pairs,
)
from lockcache_stress.report import Ran, Written

_COUNT: Final = click.IntRange(0, 1_000_000)
_PAIRS: Final = 200


@click.command("keys", short_help="changes or moves a compilation: does the key change with the output, and only then?")
@click.option("--pairs", type=_COUNT, default=None, help="Pairs to compile. [200; 0 with --moves]")
@click.option("--moves", type=_COUNT, default=0, show_default=True, help="Programs to move.")
@with_shell("keys")
def keys_command(shell: Shell, pairs: int | None, moves: int) -> int:
    """Compile pairs that differ in one option, macro, header, variable, directory or line, with the real NVRTC.

    Wherever the two outputs differ, the keys must differ, and the part that changed must be named as 'lockcache why'
    names it. The table says what reached the output. A pair takes some 0.1 s; for a night, --pairs 100000.

    With --moves, the same program and headers are put under another prefix, spelled in other ways. Each place must get
    its own output, byte for byte; where nothing active names a path, the second place must hit. A move takes 0.2 s,
    of CCCL some seconds.

    \b
    lockcache-stress keys
    lockcache-stress keys --pairs 5000 --seed 1 --report keys.html
    lockcache-stress keys --moves 500
    """
    pairs = (0 if moves else _PAIRS) if pairs is None else pairs
    compared: list[Outcome] = []
    moved: list[Moved] = []
    replay = shell.replay("--pairs", str(pairs), *(["--moves", str(moves)] if moves else []))

    def make() -> Written:
        tables = [tabulate_pairs(compared, shell.seed)] if compared else []
        tables += [tabulate_moves(moved, shell.seed)] if moved else []
        return Written(f"lockcache-stress {shell.name}", [Ran(each, replay) for each in tables], {})

    def as_json(written: Written) -> dict[str, object]:
        found = pairs_numbers(compared, shell.seed) if compared or not moved else {}
        return {**found, **(moves_numbers(moved, shell.seed) if moved else {})}

    with shell.running(make, as_json, lambda: f"{len(compared)} pairs, {len(moved)} moves") as show:
        # Moves first: the last pairs are of an option that NVRTC applies to all that it compiles afterwards.
        if moves:
            moved.extend(try_moves(moves, shell.seed, show))
        if pairs:
            compared.extend(try_pairs(pairs, shell.seed, show))
    return shell.code
